//! Changes of files and their texts (`docs/specs/executor.md`, section 6.4).

use serde_json::{Value, json};

use super::{CAT, Case, TEN, case, check, insert, replace};
use crate::fixture::all_users;

const SNIPPET: &str =
    "The file {}/f has been edited. Here's the result of running `cat -n` on a snippet of {}/f:\n";
const INSERTED: &str = "The file {}/f has been edited. Here's the result of running `cat -n` on a snippet of the edited file:\n";
const REVIEW: &str =
    "Review the changes and make sure they are as expected. Edit the file again if necessary.";
const REVIEW_INSERTED: &str = "Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.";

#[test]
fn files_are_created() {
    let create = |text: &str| json!({"command": "create", "file_text": text});
    let new = |section, text: &'static str, diff| Case {
        before: None,
        ..case(
            section,
            b"",
            create(text),
            "File created successfully at: {}/f".to_owned(),
            diff,
            text.as_bytes(),
        )
    };
    check(&[
        new(
            "6.4 create",
            "l1\nl2\n",
            "--- {}/f\n+++ {}/f\n@@ -0,0 +1,2 @@\n+l1\n+l2",
        ),
        new(
            "6.4 create without a newline",
            "x",
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-\n+x",
        ),
        new("6.4 create empty", "", ""),
        new(
            "6.4 create with CRLF",
            "a\r\nb",
            "--- {}/f\n+++ {}/f\n@@ -1 +1,2 @@\n-\n+a\n+b",
        ),
        new(
            "6.4 create with Unicode",
            "é字🦀",
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-\n+é字🦀",
        ),
    ]);
}

#[test]
fn text_is_replaced() {
    let shown = |lines: &str| format!("{SNIPPET}{lines}{REVIEW}");
    check(&[
        case(
            "3.4 edit",
            TEN,
            replace("l7", "L7\nL7b"),
            shown(
                "     4\tl4\n     5\tl5\n     6\tl6\n     7\tL7\n     8\tL7b\n     9\tl8\n    10\tl9\n    11\tl10\n    12\t\n",
            ),
            "--- {}/f\n+++ {}/f\n@@ -7 +7,2 @@\n-l7\n+L7\n+L7b",
            b"l1\nl2\nl3\nl4\nl5\nl6\nL7\nL7b\nl8\nl9\nl10\n",
        ),
        case(
            "6.4 first line",
            TEN,
            replace("l1\n", "x\n"),
            shown(
                "     1\tx\n     2\tl2\n     3\tl3\n     4\tl4\n     5\tl5\n     6\tl6\n     7\t\n",
            ),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-l1\n+x",
            b"x\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\n",
        ),
        case(
            "6.4 deletion: no new_str",
            b"a\nb\nc\n",
            json!({"command": "str_replace", "old_str": "b\n", "new_str": null}),
            shown("     1\ta\n     2\tc\n     3\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -2 +1,0 @@\n-b",
            b"a\nc\n",
        ),
        case(
            "6.4 stripped on the second try",
            b"  a = 1\n",
            replace(" a = 1  ", " b = 2 "),
            shown("     1\t  b = 2\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-  a = 1\n+  b = 2",
            b"  b = 2\n",
        ),
        case(
            "6.4 literal, no pattern",
            b"a.c abc\n",
            replace("a.c", "$1\\n"),
            shown("     1\t$1\\n abc\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-a.c abc\n+$1\\n abc",
            b"$1\\n abc\n",
        ),
        case(
            "6.4 empty old_str in an empty file",
            b"",
            replace("", "x"),
            shown("     1\tx\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-\n+x",
            b"x",
        ),
        case(
            "6.4 everything goes",
            b"a",
            replace("a", ""),
            shown("     1\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-a\n+",
            b"",
        ),
    ]);
}

#[test]
fn encodings_and_newlines_stay() {
    let shown = |lines: &str| format!("{SNIPPET}{lines}{REVIEW}");
    check(&[
        case(
            "12.15 CRLF stays",
            b"a\r\nb\r\nc\r\n",
            replace("a\nb", "x\ny"),
            shown("     1\tx\n     2\ty\n     3\tc\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,2 +1,2 @@\n-a\n-b\n+x\n+y",
            b"x\r\ny\r\nc\r\n",
        ),
        case(
            "12.15 mixed newlines stay",
            b"a\nb\r\nc\n",
            replace("b", "B"),
            shown("     1\ta\n     2\tB\n     3\tc\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -2 +2 @@\n-b\n+B",
            b"a\nB\r\nc\n",
        ),
        case(
            "12.15 Latin-1 stays",
            b"d\xe9j\xe0 vu, tr\xe8s bien\n",
            replace("vu", "\u{fc}"),
            shown("     1\tdéjà ü, très bien\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-déjà vu, très bien\n+déjà ü, très bien",
            b"d\xe9j\xe0 \xfc, tr\xe8s bien\n",
        ),
        case(
            "12.15 UTF-16 stays",
            b"\xff\xfea\0\n\0",
            replace("a", "\u{e9}"),
            shown("     1\té\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-a\n+é",
            b"\xff\xfe\xe9\0\n\0",
        ),
        case(
            "12.15 a byte order mark stays",
            b"\xef\xbb\xbfa\n",
            replace("a", "b"),
            shown("     1\tb\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-a\n+b",
            b"\xef\xbb\xbfb\n",
        ),
        case(
            "6.4 diff lines are right-stripped",
            b"a\n",
            replace("a", "b  \t"),
            shown("     1\tb  \t\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1 +1 @@\n-a\n+b",
            b"b  \t\n",
        ),
        Case {
            args: json!({"command": "str_replace", "path": "{}//./f", "old_str": "a", "new_str": "b"}),
            diff: "--- {}//./f\n+++ {}//./f\n@@ -1 +1 @@\n-a\n+b",
            ..case(
                "6.4 the path as given",
                b"a\n",
                Value::Null,
                shown("     1\tb\n     2\t\n"),
                "",
                b"b\n",
            )
        },
    ]);
}

#[test]
fn lines_are_inserted() {
    let shown = |lines: &str| format!("{INSERTED}{lines}{REVIEW_INSERTED}");
    check(&[
        case(
            "6.4 insert in the middle",
            TEN,
            insert(6, "A\nB"),
            shown(
                "     3\tl3\n     4\tl4\n     5\tl5\n     6\tl6\n     7\tA\n     8\tB\n     9\tl7\n    10\tl8\n    11\tl9\n    12\tl10\n    13\t\n",
            ),
            "--- {}/f\n+++ {}/f\n@@ -6,0 +7,2 @@\n+A\n+B",
            b"l1\nl2\nl3\nl4\nl5\nl6\nA\nB\nl7\nl8\nl9\nl10\n",
        ),
        case(
            "6.4 insert at the start",
            b"a\nb\n",
            insert(0, "x"),
            shown("     1\tx\n     2\ta\n     3\tb\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -0,0 +1 @@\n+x",
            b"x\na\nb\n",
        ),
        case(
            "6.4 insert at the end",
            b"a\n",
            insert(1, "x\n"),
            shown("     1\ta\n     2\tx\n     3\t\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x\n@@ -2,0 +4 @@\n+",
            b"a\nx\n\n",
        ),
        case(
            "6.4 insert into an empty file",
            b"",
            insert(0, "x"),
            shown("     1\tx\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -0,0 +1 @@\n+x",
            b"x\n",
        ),
        case(
            "6.4 insert_line as a text",
            b"a\n",
            insert(" 1", "x"),
            shown("     1\ta\n     2\tx\n     3\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x",
            b"a\nx\n",
        ),
        case(
            "6.4 insert after a last line without newline",
            b"a\nb",
            insert(2, "x"),
            shown("     1\ta\n     2\tb\n     3\tx\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -2,0 +3,2 @@\n+x\n+",
            b"a\nb\nx\n",
        ),
        case(
            "12.15 insert keeps CRLF",
            b"a\r\nb\r\n",
            insert(1, "x"),
            shown("     1\ta\n     2\tx\n     3\tb\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x",
            b"a\r\nx\r\nb\r\n",
        ),
    ]);
}

#[test]
fn edits_are_undone_up_to_ten_times() {
    for fixture in all_users() {
        let path = fixture.fill("{}/f");
        let edit = |args: Value| {
            let mut args = args;
            args["path"] = path.clone().into();
            fixture.act("edit", &args)
        };
        let undo = || {
            edit(json!({"command": "undo_edit"}))["content"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        edit(json!({"command": "create", "file_text": "v0\r\n"}));
        let header = format!("Last edit to {path} undone successfully. {CAT}{path}:\n");
        let same = format!("{header}     1\tv0\n     2\t\n");
        assert_eq!(undo(), same, "6.4 undo of create changes nothing");
        assert_eq!(undo(), format!("ERROR:\nNo edit history found for {path}."));
        for step in 0..12 {
            let answer = edit(replace(&format!("v{step}"), &format!("v{}", step + 1)));
            assert!(!answer["content"].as_str().unwrap().starts_with("ERROR"));
        }
        for step in (2..12).rev() {
            let restored = format!("{header}     1\tv{step}\n     2\t\n");
            assert_eq!(undo(), restored, "6.4 ten steps are undone");
            assert_eq!(
                std::fs::read(&path).unwrap(),
                format!("v{step}\r\n").as_bytes()
            );
        }
        assert_eq!(undo(), format!("ERROR:\nNo edit history found for {path}."));
        let answer = edit(replace("v2", "w"));
        assert!(
            answer["extras"]["diff"]
                .as_str()
                .unwrap()
                .ends_with("-v2\n+w")
        );
        let answer = edit(json!({"command": "undo_edit"}));
        assert!(
            answer["extras"]["diff"]
                .as_str()
                .unwrap()
                .ends_with("@@ -1 +1 @@\n-w\n+v2")
        );
    }
}
