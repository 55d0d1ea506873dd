//! Views of the editor, also through `read` (`docs/specs/executor.md`, sections 6.2 and 6.4).

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{CAT, view};
use crate::fixture::{ServerFixture, all_users};
use crate::transfer::fields;

const TEN: &[u8] = b"l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\n";

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
    for fixture in all_users() {
        for (section, content, path, range, expected) in &cases {
            fixture.clear();
            fixture.put("f", content);
            let answer = view(&fixture, path, range);
            let expected = json!({
                "message": format!("I read the file {}.", fixture.fill(path)),
                "observation": "read",
                "content": fixture.fill(expected),
                "extras": {"path": fixture.fill(path), "impl_source": "oh_aci"},
            });
            assert_eq!(answer, expected, "{section}");
        }
        fixture.put("b", b"\0\xff");
        std::fs::write(fixture.path("big"), "x".repeat(11 << 20)).unwrap();
        fixture.put("a.docx", b"text");
        for row in [
            "6.2 binary | {}/b | error | ERROR_BINARY_FILE",
            "6.4 too large | {}/big | read | ERROR:\nFile validation failed for {}/big: \
             File is too large (11.0MB). Maximum allowed size is 10MB.",
            "6.4 a document, no converter | {}/a.docx | read | ERROR:\nError in converting file to \
             Markdown: no converter is installed. Please use Python code to read {}/a.docx",
        ] {
            let [section, path, kind, content] = fields(row);
            let answer = view(&fixture, path, &Value::Null);
            assert_eq!(answer["observation"], kind, "{section}");
            assert_eq!(answer["content"], fixture.fill(content), "{section}");
        }
    }
}

#[test]
fn long_files_are_clipped() {
    let fixture = ServerFixture::new("root");
    fixture.put("f", "é".repeat(20_000).as_bytes());
    let notice = "<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. You should retry this tool after you have searched inside the file with `grep -n` in order to find the line numbers of what you are looking for.</NOTE>";
    let expected = format!("{CAT}{{}}/f:\n     1\t{}{notice}\n", "é".repeat(16_000));
    assert_eq!(
        view(&fixture, "{}/f", &Value::Null)["content"],
        fixture.fill(&expected),
        "6.4 a long file is clipped"
    );
}

#[test]
fn directories_are_viewed() {
    let header =
        "Here's the files and directories up to 2 levels deep in {}, excluding hidden items:\n";
    for fixture in all_users() {
        assert_eq!(
            view(&fixture, "{}", &Value::Null)["content"],
            fixture.fill(&format!("{header}{{}}/")),
            "6.4 an empty directory"
        );
        let hidden = ["a b/.hidden", ".git/config", ".env"];
        for name in hidden.into_iter().chain(["a b/x $(id)/deep", "a.txt", "Z"]) {
            fixture.put(name, b"");
        }
        symlink("a b", fixture.path("link")).unwrap();
        symlink(".", fixture.path("loop")).unwrap();
        symlink("nothing", fixture.path("dangling")).unwrap();
        let expected = format!(
            "{header}{{}}/\n{{}}/Z\n{{}}/a b/\n{{}}/a b/x $(id)/\n{{}}/a.txt\n{{}}/dangling\n{{}}/link/\n{{}}/link/x $(id)/\n{{}}/loop/\
             \n\n2 hidden files/directories in this directory are excluded. You can use 'ls -la {{}}' to see them."
        );
        for path in ["{}", "{}/", "{}//."] {
            assert_eq!(
                view(&fixture, path, &Value::Null)["content"],
                fixture.fill(&expected),
                "6.4 a directory, two levels deep"
            );
        }
        let command = json!({"command": "view", "path": fixture.fill("{}")});
        let edit = fixture.act("edit", &command);
        assert_eq!(edit["content"], fixture.fill(&expected));
    }
}
