//! Changes of files and their texts (`docs/specs/executor.md`, section 6.4).

use serde_json::{Value, json};

use super::{CAT, check_changes};
use crate::fixture::all_users;

const TEN: &str = "l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\n";

/// Aligns the numbers of lines.
fn numbered(lines: &str) -> String {
    let line = |line: &str| {
        let (number, text) = line.split_once('\t').unwrap();
        format!("{number:>6}\t{text}")
    };
    lines.split_inclusive('\n').map(line).collect()
}

/// Observation of `str_replace` with numbered lines.
fn replaced(lines: &str) -> String {
    let lines = numbered(lines);
    format!(
        "The file {{}}/f has been edited. {CAT}a snippet of {{}}/f:\n{lines}Review the changes and \
         make sure they are as expected. Edit the file again if necessary."
    )
}

/// Observation of `insert` with numbered lines.
fn inserted(lines: &str) -> String {
    let lines = numbered(lines);
    format!(
        "The file {{}}/f has been edited. {CAT}a snippet of the edited file:\n{lines}Review the \
         changes and make sure they are as expected (correct indentation, no duplicate lines, \
         etc). Edit the file again if necessary."
    )
}

#[test]
fn files_are_created() {
    check_changes(
        |_| "File created successfully at: {}/f".to_owned(),
        &[
            "6.4 create | - | command=create; file_text=l1\nl2\n |  | \
             @@ -0,0 +1,2 @@\n+l1\n+l2 | l1\nl2\n",
            "6.4 create without a newline | - | command=create; file_text=x |  | \
             @@ -1 +1 @@\n-\n+x | x",
            "6.4 create empty | - | command=create; file_text= |  |  | ",
            "6.4 create with CRLF | - | command=create; file_text=a\r\nb |  | \
             @@ -1 +1,2 @@\n-\n+a\n+b | a\r\nb",
            "6.4 create with Unicode | - | command=create; file_text=é字🦀 |  | \
             @@ -1 +1 @@\n-\n+é字🦀 | é字🦀",
        ],
    );
}

#[test]
fn text_is_replaced() {
    let after = TEN.replace("l7", "L7\nL7b");
    let edited = format!(
        "3.4 edit | {TEN} | command=str_replace; old_str=l7; new_str=L7\nL7b | \
         4\tl4\n5\tl5\n6\tl6\n7\tL7\n8\tL7b\n9\tl8\n10\tl9\n11\tl10\n12\t\n | @@ -7 +7,2 @@\n-l7\n+L7\n+L7b | {after}"
    );
    let after = TEN.replace("l1\n", "x\n");
    let first = format!(
        "6.4 first line | {TEN} | command=str_replace; old_str=l1\n; new_str=x\n | \
         1\tx\n2\tl2\n3\tl3\n4\tl4\n5\tl5\n6\tl6\n7\t\n | \
         @@ -1 +1 @@\n-l1\n+x | {after}"
    );
    check_changes(
        replaced,
        &[
            &edited,
            &first,
            "6.4 deletion: no new_str | a\nb\nc\n | \
             command=str_replace; old_str=b\n; new_str=null | 1\ta\n2\tc\n3\t\n | \
             @@ -2 +1,0 @@\n-b | a\nc\n",
            "6.4 stripped on the second try |   a = 1\n | \
             command=str_replace; old_str= a = 1  ; new_str= b = 2  | \
             1\t  b = 2\n2\t\n | @@ -1 +1 @@\n-  a = 1\n+  b = 2 |   b = 2\n",
            "6.4 literal, no pattern | a.c abc\n | \
             command=str_replace; old_str=a.c; new_str=$1\\n | 1\t$1\\n abc\n2\t\n | \
             @@ -1 +1 @@\n-a.c abc\n+$1\\n abc | $1\\n abc\n",
            "6.4 empty old_str in an empty file |  | command=str_replace; old_str=; new_str=x | \
             1\tx\n | @@ -1 +1 @@\n-\n+x | x",
            "6.4 everything goes | a | command=str_replace; old_str=a; new_str= | \
             1\t\n | @@ -1 +1 @@\n-a\n+ | ",
        ],
    );
}

#[test]
fn encodings_and_newlines_stay() {
    check_changes(
        replaced,
        &[
            "12.15 CRLF stays | a\r\nb\r\nc\r\n | \
             command=str_replace; old_str=a\nb; new_str=x\ny | \
             1\tx\n2\ty\n3\tc\n4\t\n | \
             @@ -1,2 +1,2 @@\n-a\n-b\n+x\n+y | x\r\ny\r\nc\r\n",
            "12.15 mixed newlines stay | a\nb\r\nc\n | command=str_replace; old_str=b; new_str=B | \
             1\ta\n2\tB\n3\tc\n4\t\n | @@ -2 +2 @@\n-b\n+B | a\nB\r\nc\n",
            "12.15 Latin-1 stays | d<e9>j<e0> vu, tr<e8>s bien\n | \
             command=str_replace; old_str=vu; new_str=ü | 1\tdéjà ü, très bien\n2\t\n | \
             @@ -1 +1 @@\n-déjà vu, très bien\n+déjà ü, très bien | d<e9>j<e0> <fc>, tr<e8>s bien\n",
            "12.15 UTF-16 stays | <ff><fe>a\0\n\0 | command=str_replace; old_str=a; new_str=é | \
             1\té\n2\t\n | @@ -1 +1 @@\n-a\n+é | <ff><fe><e9>\0\n\0",
            "12.15 a byte order mark stays | \u{feff}a\n | \
             command=str_replace; old_str=a; new_str=b | 1\tb\n2\t\n | \
             @@ -1 +1 @@\n-a\n+b | \u{feff}b\n",
            "6.4 diff lines are right-stripped | a\n | \
             command=str_replace; old_str=a; new_str=b  \t | 1\tb  \t\n2\t\n | \
             @@ -1 +1 @@\n-a\n+b | b  \t\n",
            "6.4 the path as given | a\n | \
             command=str_replace; path={}//./f; old_str=a; new_str=b | 1\tb\n2\t\n | \
             @@ -1 +1 @@\n-a\n+b | b\n",
        ],
    );
}

#[test]
fn lines_are_inserted() {
    let after = TEN.replace("l7", "A\nB\nl7");
    let middle = format!(
        "6.4 insert in the middle | {TEN} | command=insert; insert_line=6; new_str=A\nB | \
         3\tl3\n4\tl4\n5\tl5\n6\tl6\n7\tA\n8\tB\n9\tl7\n10\tl8\n11\tl9\n12\tl10\n13\t\n | @@ -6,0 +7,2 @@\n+A\n+B | {after}"
    );
    check_changes(
        inserted,
        &[
            &middle,
            "6.4 insert at the start | a\nb\n | command=insert; insert_line=0; new_str=x | \
             1\tx\n2\ta\n3\tb\n4\t\n | @@ -0,0 +1 @@\n+x | x\na\nb\n",
            "6.4 insert at the end | a\n | command=insert; insert_line=1; new_str=x\n | \
             1\ta\n2\tx\n3\t\n4\t\n | \
             @@ -1,0 +2 @@\n+x\n@@ -2,0 +4 @@\n+ | a\nx\n\n",
            "6.4 insert into an empty file |  | command=insert; insert_line=0; new_str=x | \
             1\tx\n2\t\n | @@ -0,0 +1 @@\n+x | x\n",
            "6.4 insert_line as a text | a\n | command=insert; insert_line= 1; new_str=x | \
             1\ta\n2\tx\n3\t\n | @@ -1,0 +2 @@\n+x | a\nx\n",
            "6.4 insert after a last line without newline | a\nb | \
             command=insert; insert_line=2; new_str=x | \
             1\ta\n2\tb\n3\tx\n4\t\n | @@ -2,0 +3,2 @@\n+x\n+ | a\nb\nx\n",
            "12.15 insert keeps CRLF | a\r\nb\r\n | command=insert; insert_line=1; new_str=x | \
             1\ta\n2\tx\n3\tb\n4\t\n | @@ -1,0 +2 @@\n+x | a\r\nx\r\nb\r\n",
        ],
    );
}

#[test]
fn edits_are_undone_up_to_ten_times() {
    for fixture in all_users() {
        let path = fixture.fill("{}/f");
        let edit = |mut args: Value| {
            args["path"] = path.clone().into();
            let answer = fixture.act("edit", &args);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            [text(&answer["content"]), text(&answer["extras"]["diff"])]
        };
        let replace = |old: &str, new: &str| {
            edit(json!({"command": "str_replace", "old_str": old, "new_str": new}))
        };
        let undo = || edit(json!({"command": "undo_edit"}));
        edit(json!({"command": "create", "file_text": "v0\r\n"}));
        let header = format!("Last edit to {path} undone successfully. {CAT}{path}:\n");
        let nothing_left = format!("ERROR:\nNo edit history found for {path}.");
        let same = format!("{header}     1\tv0\n     2\t\n");
        assert_eq!(undo()[0], same, "6.4 undo of create changes nothing");
        assert_eq!(undo()[0], nothing_left);
        for step in 0..12 {
            let [content, _] = replace(&format!("v{step}"), &format!("v{}", step + 1));
            assert!(!content.starts_with("ERROR"));
        }
        for step in (2..12).rev() {
            let restored = format!("{header}     1\tv{step}\n     2\t\n");
            assert_eq!(undo()[0], restored, "6.4 ten steps are undone");
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, format!("v{step}\r\n"));
        }
        assert_eq!(undo()[0], nothing_left);
        assert!(replace("v2", "w")[1].ends_with("-v2\n+w"));
        assert!(undo()[1].ends_with("@@ -1 +1 @@\n-w\n+v2"));
    }
}
