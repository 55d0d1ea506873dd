//! Errors of the editor and the order of its checks (`docs/specs/executor.md`, section 6.4).

use serde_json::json;

use super::{Case, check, insert, refused, replace};

#[test]
fn path_errors() {
    let path = |hint: &str| format!("Invalid `path` parameter: {{}}/f. {hint}");
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
    ]);
}

#[test]
fn parameter_errors() {
    let required =
        |name, command| format!("Parameter `{name}` is required for command: {command}.");
    check(&[
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
            insert(3, "x"),
            "Invalid `insert_line` parameter: 3. It should be within the range of allowed values: [0, 2]",
        ),
        refused(
            "6.4 insert_line negative",
            b"a\nb",
            insert(-1, "x"),
            "Invalid `insert_line` parameter: -1. It should be within the range of allowed values: [0, 2]",
        ),
        refused(
            "6.4 insert_line in an empty file",
            b"",
            insert(1, "x"),
            "Invalid `insert_line` parameter: 1. It should be within the range of allowed values: [0, 0]",
        ),
        refused(
            "6.4 insert_line no number",
            b"x",
            insert("abc", "x"),
            "Invalid insert_line value: 'abc'. Expected an integer.",
        ),
        refused(
            "6.4 insert_line no number, before the path",
            b"x",
            json!({"command": "view", "path": "nope", "insert_line": "1.5"}),
            "Invalid insert_line value: '1.5'. Expected an integer.",
        ),
    ]);
}

#[test]
fn content_errors() {
    check(&[
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
            insert(0, "z"),
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
