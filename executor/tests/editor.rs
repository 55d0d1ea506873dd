//! The editor over HTTP: spec 6.2 and 6.4, case by case, for every user that can be had.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::world::{World, everybody};

const CAT: &str = "Here's the result of running `cat -n` on ";
const SNIPPET: &str =
    "The file {}/f has been edited. Here's the result of running `cat -n` on a snippet of {}/f:\n";
const INSERTED: &str = "The file {}/f has been edited. Here's the result of running `cat -n` on a snippet of the edited file:\n";
const REVIEW: &str =
    "Review the changes and make sure they are as expected. Edit the file again if necessary.";
const REVIEW_INSERTED: &str = "Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.";
const TEN: &[u8] = b"l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\n";

/// One edit of the file `f`.
struct Case {
    section: &'static str,
    before: Option<&'static [u8]>,
    args: Value,
    content: String,
    diff: &'static str,
    after: Option<&'static [u8]>,
}

fn case(
    section: &'static str,
    before: &'static [u8],
    args: Value,
    content: String,
    diff: &'static str,
    after: &'static [u8],
) -> Case {
    Case {
        section,
        before: Some(before),
        args,
        content,
        diff,
        after: Some(after),
    }
}

/// An edit that is refused and leaves the file alone.
fn refused(section: &'static str, before: &'static [u8], args: Value, error: &str) -> Case {
    case(
        section,
        before,
        args,
        format!("ERROR:\n{error}"),
        "",
        before,
    )
}

fn check(cases: &[Case]) {
    for world in everybody() {
        for case in cases {
            world.clear();
            if let Some(before) = case.before {
                world.put("f", before);
            }
            let mut args = case.args.clone();
            args["path"] = world.fill(args["path"].as_str().unwrap_or("{}/f")).into();
            let answer = world.act("edit", &args);
            let expected = json!({
                "message": format!("I edited the file {}.", args["path"].as_str().unwrap()),
                "observation": "edit",
                "content": world.fill(&case.content),
                "extras": {
                    "path": args["path"],
                    "prev_exist": false,
                    "old_content": args["old_str"],
                    "new_content": args["new_str"],
                    "impl_source": "oh_aci",
                    "diff": world.fill(case.diff),
                    "_diff_cache": null,
                },
            });
            assert_eq!(answer, expected, "{} as {}", case.section, world.uid);
            let after = std::fs::read(world.path("f")).ok();
            assert_eq!(after.as_deref(), case.after, "{}", case.section);
        }
    }
}

fn replace(old: &str, new: &str) -> Value {
    json!({"command": "str_replace", "old_str": old, "new_str": new})
}

fn insert(line: Value, new: &str) -> Value {
    json!({"command": "insert", "insert_line": line, "new_str": new})
}

#[test]
fn refusals_come_in_the_originals_order_and_words() {
    let path = |hint: &str| format!("Invalid `path` parameter: {{}}/f. {hint}");
    let required =
        |name, command| format!("Parameter `{name}` is required for command: {command}.");
    check(&[
        refused(
            "6.4 create on an existing path",
            b"x",
            json!({"command": "create", "file_text": "y"}),
            &path("File already exists at: {}/f. Cannot overwrite files using command `create`."),
        ),
        refused(
            "6.4 the path comes before the parameters",
            b"x",
            json!({"command": "create"}),
            &path("File already exists at: {}/f. Cannot overwrite files using command `create`."),
        ),
        Case {
            before: None,
            after: None,
            ..refused(
                "6.4 missing path",
                b"",
                replace("a", "b"),
                &path("The path {}/f does not exist. Please provide a valid path."),
            )
        },
        Case {
            before: None,
            after: None,
            ..refused(
                "6.4 view of a missing path",
                b"",
                json!({"command": "view"}),
                &path("The path {}/f does not exist. Please provide a valid path."),
            )
        },
        Case {
            before: None,
            after: None,
            ..refused(
                "6.4 undo on a missing path",
                b"",
                json!({"command": "undo_edit"}),
                &path("The path {}/f does not exist. Please provide a valid path."),
            )
        },
        Case {
            before: None,
            after: None,
            ..refused(
                "6.4 unknown command on a missing path",
                b"",
                json!({"command": "zap"}),
                &path("The path {}/f does not exist. Please provide a valid path."),
            )
        },
        refused(
            "6.4 relative path",
            b"x",
            json!({"command": "view", "path": "nope"}),
            "Invalid `path` parameter: nope. The path should be an absolute path, starting with `/`.",
        ),
        refused(
            "6.4 relative path that exists",
            b"x",
            json!({"command": "view", "path": "./f"}),
            "Invalid `path` parameter: f. The path should be an absolute path, starting with `/`. Maybe you meant {}/f?",
        ),
        refused(
            "6.4 empty path",
            b"x",
            json!({"command": "view", "path": ""}),
            "Invalid `path` parameter: .. The path should be an absolute path, starting with `/`. Maybe you meant {}?",
        ),
        refused(
            "6.4 relative path comes before all else",
            b"x",
            json!({"command": "zap", "path": "nope"}),
            "Invalid `path` parameter: nope. The path should be an absolute path, starting with `/`.",
        ),
        refused(
            "6.4 edit of a directory",
            b"x",
            json!({"command": "str_replace", "path": "{}", "old_str": "a"}),
            "Invalid `path` parameter: {}. The path {} is a directory and only the `view` command can be used on directories.",
        ),
        refused(
            "6.4 unknown command on a directory",
            b"x",
            json!({"command": "zap", "path": "{}/"}),
            "Invalid `path` parameter: {}. The path {} is a directory and only the `view` command can be used on directories.",
        ),
        refused(
            "6.4 create of a document",
            b"x",
            json!({"command": "create", "path": "{}/a.pdf", "file_text": ""}),
            "Invalid `path` parameter: {}/a.pdf. The path {}/a.pdf points to a binary file (.pdf) and only the `view` command can be used on supported binary files.",
        ),
        refused(
            "6.4 create without file_text",
            b"x",
            json!({"command": "create", "path": "{}/g"}),
            &required("file_text", "create"),
        ),
        refused(
            "6.4 str_replace without old_str",
            b"x",
            json!({"command": "str_replace"}),
            &required("old_str", "str_replace"),
        ),
        refused(
            "6.4 equal strings",
            b"x",
            replace("x", "x"),
            "Invalid `new_str` parameter: x. No replacement was performed. `new_str` and `old_str` must be different.",
        ),
        refused(
            "6.4 equal strings that are not there",
            b"x",
            replace("", ""),
            "Invalid `new_str` parameter: . No replacement was performed. `new_str` and `old_str` must be different.",
        ),
        refused(
            "6.4 insert without anything",
            b"x",
            json!({"command": "insert"}),
            &required("insert_line", "insert"),
        ),
        refused(
            "6.4 insert without new_str",
            b"x",
            json!({"command": "insert", "insert_line": 0}),
            &required("new_str", "insert"),
        ),
        refused(
            "6.4 insert_line too large",
            b"a\nb\n",
            insert(3.into(), "x"),
            "Invalid `insert_line` parameter: 3. It should be within the range of allowed values: [0, 2]",
        ),
        refused(
            "6.4 insert_line negative",
            b"a\nb",
            insert((-1).into(), "x"),
            "Invalid `insert_line` parameter: -1. It should be within the range of allowed values: [0, 2]",
        ),
        refused(
            "6.4 insert_line in an empty file",
            b"",
            insert(1.into(), "x"),
            "Invalid `insert_line` parameter: 1. It should be within the range of allowed values: [0, 0]",
        ),
        refused(
            "6.4 insert_line no number",
            b"x",
            insert("abc".into(), "x"),
            "Invalid insert_line value: 'abc'. Expected an integer.",
        ),
        refused(
            "6.4 insert_line no number, before the path",
            b"x",
            json!({"command": "view", "path": "nope", "insert_line": "1.5"}),
            "Invalid insert_line value: '1.5'. Expected an integer.",
        ),
        refused(
            "6.4 no match",
            b"abc\n",
            replace("x y", "z"),
            "No replacement was performed, old_str `x y` did not appear verbatim in {}/f.",
        ),
        refused(
            "6.4 no match, stripped",
            b"abc\n",
            replace("  x \n", "z"),
            "No replacement was performed, old_str `x` did not appear verbatim in {}/f.",
        ),
        refused(
            "6.4 two matches",
            b"x\n\n\n\n\n\nx x\n",
            replace("x", "z"),
            "No replacement was performed. Multiple occurrences of old_str `x` in lines [1, 7]. Please ensure it is unique.",
        ),
        refused(
            "6.4 two matches on one line",
            b"a a\n",
            replace("a", "z"),
            "No replacement was performed. Multiple occurrences of old_str `a` in lines [1]. Please ensure it is unique.",
        ),
        refused(
            "6.4 two matches once stripped",
            b"a\na\n",
            replace(" a ", "z"),
            "No replacement was performed. Multiple occurrences of old_str `a` in lines [1, 2]. Please ensure it is unique.",
        ),
        refused(
            "6.4 empty old_str",
            b"a\nb\nc\n",
            replace("", "z"),
            "No replacement was performed. Multiple occurrences of old_str `` in lines [1, 2, 3, 4]. Please ensure it is unique.",
        ),
        refused(
            "6.4 binary content",
            b"a\0b",
            replace("a", "z"),
            "File validation failed for {}/f: File appears to be binary and this file type cannot be read or edited by this tool.",
        ),
        refused(
            "6.4 insert into binary content",
            b"\x7fELF\x01\0\xff",
            insert(0.into(), "z"),
            "File validation failed for {}/f: File appears to be binary and this file type cannot be read or edited by this tool.",
        ),
        refused(
            "6.4 unknown command",
            b"x",
            json!({"command": "zap"}),
            "Unrecognized command zap. The allowed commands for the oh_editor tool are: view, create, str_replace, insert, undo_edit",
        ),
        refused(
            "6.4 no command",
            b"x",
            json!({}),
            "Unrecognized command . The allowed commands for the oh_editor tool are: view, create, str_replace, insert, undo_edit",
        ),
        refused(
            "6.4 no history",
            b"x",
            json!({"command": "undo_edit"}),
            "No edit history found for {}/f.",
        ),
        refused(
            "6.4 create with a missing parent",
            b"x",
            json!({"command": "create", "path": "{}/e/new.py", "file_text": ""}),
            "Ran into [Errno 2] No such file or directory: '{}/e/new.py' while trying to write to {}/e/new.py",
        ),
        refused(
            "6.4 create below a file",
            b"x",
            json!({"command": "create", "path": "{}/f/g", "file_text": ""}),
            "Ran into [Errno 20] Not a directory: '{}/f/g' while trying to write to {}/f/g",
        ),
        refused(
            "6.4 a character that the encoding lacks",
            b"d\xe9j\xe0 vu, tr\xe8s bien\n",
            replace("vu", "字"),
            "Ran into 'windows-1252' codec can't encode character '字' in position 5: character maps to <undefined> while trying to write to {}/f",
        ),
    ]);
}

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
            insert(6.into(), "A\nB"),
            shown(
                "     3\tl3\n     4\tl4\n     5\tl5\n     6\tl6\n     7\tA\n     8\tB\n     9\tl7\n    10\tl8\n    11\tl9\n    12\tl10\n    13\t\n",
            ),
            "--- {}/f\n+++ {}/f\n@@ -6,0 +7,2 @@\n+A\n+B",
            b"l1\nl2\nl3\nl4\nl5\nl6\nA\nB\nl7\nl8\nl9\nl10\n",
        ),
        case(
            "6.4 insert at the start",
            b"a\nb\n",
            insert(0.into(), "x"),
            shown("     1\tx\n     2\ta\n     3\tb\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -0,0 +1 @@\n+x",
            b"x\na\nb\n",
        ),
        case(
            "6.4 insert at the end",
            b"a\n",
            insert(1.into(), "x\n"),
            shown("     1\ta\n     2\tx\n     3\t\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x\n@@ -2,0 +4 @@\n+",
            b"a\nx\n\n",
        ),
        case(
            "6.4 insert into an empty file",
            b"",
            insert(0.into(), "x"),
            shown("     1\tx\n     2\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -0,0 +1 @@\n+x",
            b"x\n",
        ),
        case(
            "6.4 insert_line as a text",
            b"a\n",
            insert(" 1".into(), "x"),
            shown("     1\ta\n     2\tx\n     3\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x",
            b"a\nx\n",
        ),
        case(
            "6.4 insert after a last line without newline",
            b"a\nb",
            insert(2.into(), "x"),
            shown("     1\ta\n     2\tb\n     3\tx\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -2,0 +3,2 @@\n+x\n+",
            b"a\nb\nx\n",
        ),
        case(
            "12.15 insert keeps CRLF",
            b"a\r\nb\r\n",
            insert(1.into(), "x"),
            shown("     1\ta\n     2\tx\n     3\tb\n     4\t\n"),
            "--- {}/f\n+++ {}/f\n@@ -1,0 +2 @@\n+x",
            b"a\r\nx\r\nb\r\n",
        ),
    ]);
}

#[test]
fn edits_are_undone_up_to_ten_times() {
    for world in everybody() {
        let path = world.fill("{}/f");
        let edit = |args: Value| {
            let mut args = args;
            args["path"] = path.clone().into();
            world.act("edit", &args)
        };
        let undo = || {
            edit(json!({"command": "undo_edit"}))["content"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        edit(json!({"command": "create", "file_text": "v0\r\n"}));
        // 6.4: create pushes the new text, so that the first undo changes nothing.
        let header = format!("Last edit to {path} undone successfully. {CAT}{path}:\n");
        assert_eq!(undo(), format!("{header}     1\tv0\n     2\t\n"));
        assert_eq!(undo(), format!("ERROR:\nNo edit history found for {path}."));
        for step in 0..12 {
            let answer = edit(replace(&format!("v{step}"), &format!("v{}", step + 1)));
            assert!(!answer["content"].as_str().unwrap().starts_with("ERROR"));
        }
        for step in (2..12).rev() {
            assert_eq!(undo(), format!("{header}     1\tv{step}\n     2\t\n"));
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

/// `read` through the editor.
fn view(world: &World, path: &str, range: &Value) -> Value {
    let args = json!({"path": world.fill(path), "impl_source": "oh_aci", "view_range": range});
    world.act("read", &args)
}

#[test]
fn files_are_viewed() {
    let range = |hint: &str, value: &str| {
        format!("ERROR:\nInvalid `view_range` parameter: {value}. {hint}")
    };
    let shown = |lines: &str| format!("{CAT}{{}}/f:\n{lines}");
    let cases: Vec<(&str, &[u8], &str, Value, String)> = vec![
        ("6.4 whole file", b"a\nb\n", "{}/f", Value::Null, shown("     1\ta\n     2\tb\n     3\t\n")),
        ("6.4 no final newline", b"a\nb", "{}/f", json!([]), shown("     1\ta\n     2\tb\n")),
        ("6.4 empty file", b"", "{}/f", Value::Null, shown("     1\t\n")),
        ("6.4 range", TEN, "{}/f", json!([2, 3]), shown("     2\tl2\n     3\tl3\n")),
        ("6.4 range to the end", TEN, "{}/f", json!([9, -1]), shown("     9\tl9\n    10\tl10\n")),
        ("6.4 range of one line", TEN, "{}/f", json!([10, 10]), shown("    10\tl10\n")),
        ("3.4 range past the end", b"x\n", "{}/f", json!([1, 5]),
            format!("NOTE: We only show up to 1 since there're only 1 lines in this file.\n{}", shown("     1\tx\n"))),
        ("6.4 universal newlines", b"a\r\nb\rc", "{}/f", Value::Null, shown("     1\ta\n     2\tb\n     3\tc\n")),
        ("6.4 Latin-1", b"d\xe9j\xe0 vu, tr\xe8s bien", "{}/f", Value::Null, shown("     1\tdéjà vu, très bien\n")),
        ("6.4 path is tidied in the text", b"a", "{}/./f", Value::Null, shown("     1\ta\n")),
        ("6.4 start too small", TEN, "{}/f", json!([0, 3]),
            range("Its first element `0` should be within the range of lines of the file: [1, 10].", "[0, 3]")),
        ("6.4 start too large", TEN, "{}/f", json!([11, 12]),
            range("Its first element `11` should be within the range of lines of the file: [1, 10].", "[11, 12]")),
        ("6.4 range in an empty file", b"", "{}/f", json!([1, 1]),
            range("Its first element `1` should be within the range of lines of the file: [1, 0].", "[1, 1]")),
        ("6.4 end before start", TEN, "{}/f", json!([5, 2]),
            range("Its second element `2` should be greater than or equal to the first element `5`.", "[5, 2]")),
        ("6.4 negative end", TEN, "{}/f", json!([5, -2]),
            range("Its second element `-2` should be greater than or equal to the first element `5`.", "[5, -2]")),
        ("6.4 shape: one number", TEN, "{}/f", json!([5]), range("It should be a list of two integers.", "[5]")),
        ("6.4 shape: a text", TEN, "{}/f", json!([1, "a"]), range("It should be a list of two integers.", "[1, 'a']")),
        ("6.4 shape: no list", TEN, "{}/f", json!("1-2"), range("It should be a list of two integers.", "1-2")),
        ("6.4 range on a directory", b"", "{}", json!([1, 2]),
            range("The `view_range` parameter is not allowed when `path` points to a directory.", "[1, 2]")),
        ("6.2 relative path", b"x", "f", Value::Null,
            "ERROR:\nInvalid `path` parameter: f. The path should be an absolute path, starting with `/`. Maybe you meant {}/f?".to_owned()),
        ("6.2 missing path", b"x", "{}/g", Value::Null,
            "ERROR:\nInvalid `path` parameter: {}/g. The path {}/g does not exist. Please provide a valid path.".to_owned()),
        ("6.2 no path to a file", b"x", "{}/f/g", Value::Null,
            "ERROR:\nInvalid `path` parameter: {}/f/g. The path {}/f/g does not exist. Please provide a valid path.".to_owned()),
        ("6.2 a null byte is no path", b"x", "{}/a\0b", Value::Null,
            "ERROR:\nInvalid `path` parameter: {}/a\0b. The path {}/a\0b does not exist. Please provide a valid path.".to_owned()),
    ];
    for world in everybody() {
        for (section, content, path, range, expected) in &cases {
            world.clear();
            world.put("f", content);
            let answer = view(&world, path, range);
            let expected = json!({
                "message": format!("I read the file {}.", world.fill(path)),
                "observation": "read",
                "content": world.fill(expected),
                "extras": {"path": world.fill(path), "impl_source": "oh_aci"},
            });
            assert_eq!(answer, expected, "{section}");
        }
        // 6.2: what the plain reader refuses as binary is refused here as well.
        world.put("b", b"\0\xff");
        let answer = view(&world, "{}/b", &Value::Null);
        assert_eq!(
            (&answer["observation"], &answer["content"]),
            (&json!("error"), &json!("ERROR_BINARY_FILE"))
        );
        // 6.4: too large, and a document that would need a converter.
        std::fs::File::create(world.path("big"))
            .unwrap()
            .set_len(11 << 20)
            .unwrap();
        std::fs::write(world.path("big"), "x".repeat(11 << 20)).unwrap();
        let answer = view(&world, "{}/big", &Value::Null);
        let expected = "ERROR:\nFile validation failed for {}/big: File is too large (11.0MB). Maximum allowed size is 10MB.";
        assert_eq!(answer["content"], world.fill(expected));
        world.put("a.docx", b"text");
        let answer = view(&world, "{}/a.docx", &Value::Null);
        let expected = "ERROR:\nError in converting file to Markdown: no converter is installed. Please use Python code to read {}/a.docx";
        assert_eq!(answer["content"], world.fill(expected));
    }
}

#[test]
fn long_files_are_clipped() {
    let world = World::new("root");
    world.put("f", "é".repeat(20_000).as_bytes());
    let notice = "<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. You should retry this tool after you have searched inside the file with `grep -n` in order to find the line numbers of what you are looking for.</NOTE>";
    let expected = format!("{CAT}{{}}/f:\n     1\t{}{notice}\n", "é".repeat(16_000));
    assert_eq!(
        view(&world, "{}/f", &Value::Null)["content"],
        world.fill(&expected)
    );
}

#[test]
fn directories_are_viewed() {
    let header =
        "Here's the files and directories up to 2 levels deep in {}, excluding hidden items:\n";
    for world in everybody() {
        assert_eq!(
            view(&world, "{}", &Value::Null)["content"],
            world.fill(&format!("{header}{{}}/"))
        );
        for name in [
            "a b/x $(id)/deep",
            "a b/.hidden",
            "a.txt",
            ".git/config",
            ".env",
            "Z",
        ] {
            world.put(name, b"");
        }
        symlink("a b", world.path("link")).unwrap();
        symlink(".", world.path("loop")).unwrap();
        symlink("nothing", world.path("dangling")).unwrap();
        let expected = format!(
            "{header}{{}}/\n{{}}/Z\n{{}}/a b/\n{{}}/a b/x $(id)/\n{{}}/a.txt\n{{}}/dangling\n{{}}/link/\n{{}}/link/x $(id)/\n{{}}/loop/\
             \n\n2 hidden files/directories in this directory are excluded. You can use 'ls -la {{}}' to see them."
        );
        for path in ["{}", "{}/", "{}//."] {
            assert_eq!(
                view(&world, path, &Value::Null)["content"],
                world.fill(&expected)
            );
        }
        let edit = world.act(
            "edit",
            &json!({"command": "view", "path": world.fill("{}")}),
        );
        assert_eq!(edit["content"], world.fill(&expected));
    }
}

#[test]
fn modes_owners_and_links_survive_edits() {
    for world in everybody() {
        world.put("f", b"a\n");
        world.put("other", b"");
        std::fs::set_permissions(world.path("f"), std::fs::Permissions::from_mode(0o751)).unwrap();
        symlink("f", world.path("link")).unwrap();
        let facts = || {
            let found = std::fs::metadata(world.path("f")).unwrap();
            (found.mode() & 0o7777, found.uid())
        };
        for args in [
            replace("a", "b"),
            insert(0.into(), "x"),
            json!({"command": "undo_edit"}),
        ] {
            let mut args = args;
            args["path"] = world.fill("{}/link").into();
            let answer = world.act("edit", &args);
            assert!(
                !answer["content"].as_str().unwrap().starts_with("ERROR"),
                "{answer}"
            );
            // 12.15: the original leaves 0600 and root behind.
            assert_eq!(facts(), (0o751, world.uid));
            assert!(world.path("link").is_symlink());
        }
        std::fs::hard_link(world.path("f"), world.path("second")).unwrap();
        world.act("edit", &json!({"command": "str_replace", "path": world.fill("{}/f"), "old_str": "b", "new_str": "c"}));
        assert_eq!(std::fs::read(world.path("second")).unwrap(), b"c\n");
        let new = world.fill("{}/new");
        world.act(
            "edit",
            &json!({"command": "create", "path": new, "file_text": ""}),
        );
        let found = std::fs::metadata(new).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o644, world.uid));
    }
}

#[test]
fn edits_have_the_sandbox_users_rights() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED edits_have_the_sandbox_users_rights: needs root");
        return;
    }
    let world = World::new("nobody");
    let closed = world.root.parent().unwrap().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("secret"), "root's\n").unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let open = world.root.parent().unwrap().join("open");
    std::fs::write(&open, "root's\n").unwrap();
    symlink(&open, world.path("link")).unwrap();
    let run = |args: Value| {
        world.act("edit", &args)["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let secret = closed.join("secret").display().to_string();
    assert_eq!(
        run(json!({"command": "view", "path": secret})),
        format!(
            "ERROR:\nRan into [Errno 13] Permission denied: '{secret}' while trying to read {secret}"
        )
    );
    for path in [open.clone(), world.path("link")] {
        let path = path.display().to_string();
        assert_eq!(
            run(
                json!({"command": "str_replace", "path": path, "old_str": "root", "new_str": "me"})
            ),
            format!(
                "ERROR:\nRan into [Errno 13] Permission denied: '{path}' while trying to write to {path}"
            )
        );
    }
    assert_eq!(std::fs::read(&open).unwrap(), b"root's\n");
    // A file of somebody else that may be written is written where it is.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
    let answer =
        run(json!({"command": "str_replace", "path": open, "old_str": "root", "new_str": "me"}));
    assert!(!answer.starts_with("ERROR"), "{answer}");
    assert_eq!(std::fs::read(&open).unwrap(), b"me's\n");
    assert_eq!(std::fs::metadata(&open).unwrap().uid(), 0);
}

#[test]
fn other_forms_of_edit_end_as_in_the_original() {
    let world = World::new("root");
    let post = |args: Value| {
        let answer = world
            .process
            .post(&json!({"action": {"action": "edit", "args": args}}).to_string());
        (
            answer.status,
            answer.json()["detail"].as_str().unwrap().to_owned(),
        )
    };
    // 2.3: the original asserts that its client has taken such edits apart.
    assert_eq!(
        post(
            json!({"path": "/f", "impl_source": "llm_based_edit", "content": "x", "start": 1, "end": -1})
        ),
        (500, "Internal server error: ".to_owned())
    );
    let (status, detail) = post(json!({"command": "view"}));
    assert_eq!(status, 500);
    assert!(
        detail
            .ends_with("FileEditAction.__init__() missing 1 required positional argument: 'path'"),
        "{detail}"
    );
    // 3.2: the line-range arguments belong to the other form and change nothing here.
    let path = world.fill("{}/f");
    let args = json!({"command": "create", "path": path, "file_text": "x", "content": "ignored", "start": 5, "end": 9, "security_risk": -1, "thought": ""});
    assert_eq!(
        world.act("edit", &args)["content"],
        format!("File created successfully at: {path}")
    );
}

#[test]
fn concurrent_edits_of_one_file_all_count() {
    let world = World::new("root");
    world.put("f", b"");
    std::thread::scope(|scope| {
        for number in 0..24 {
            let world = &world;
            scope.spawn(move || {
                let args = json!({"command": "insert", "path": world.fill("{}/f"), "insert_line": 0, "new_str": format!("line {number}")});
                world.act("edit", &args);
            });
        }
    });
    let text = std::fs::read_to_string(world.path("f")).unwrap();
    assert_eq!(text.lines().count(), 24, "{text}");
}
