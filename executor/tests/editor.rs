//! Cases of the editor over HTTP (`docs/specs/executor.md`, sections 6.2 and 6.4), for each user.

mod changes;
mod errors;
mod permissions;
mod views;

use serde_json::{Map, Value, json};

use crate::fixture::{ServerFixture, all_users};
use crate::transfer::fields;

const CAT: &str = "Here's the result of running `cat -n` on ";

/// One edit of the file `f`.
struct Case<'a> {
    section: &'a str,
    /// Content of the file before and after the edit; `-` stands for no file.
    before: &'a str,
    after: &'a str,
    args: Value,
    content: String,
    hunks: &'a str,
}

/// Edits that fail and do not change the file, each with section, content, arguments and error.
fn check_errors(rows: &[&str]) {
    let case = |row| {
        let [section, before, args, error] = fields(row);
        Case {
            section,
            before,
            after: before,
            args: arguments(args),
            content: format!("ERROR:\n{error}"),
            hunks: "",
        }
    };
    check(rows.iter().copied().map(case));
}

/// Edits that succeed, each with section, content before, arguments, the part of the observation
/// that `content` completes, hunks of the diff, and content after.
fn check_changes(content: impl Fn(&str) -> String, rows: &[&str]) {
    let case = |row| {
        let [section, before, args, shown, hunks, after] = fields(row);
        Case {
            section,
            before,
            after,
            args: arguments(args),
            content: content(shown),
            hunks,
        }
    };
    check(rows.iter().copied().map(case));
}

/// Parses `command=insert; insert_line=1; new_str=x`.
fn arguments(text: &str) -> Value {
    let argument = |argument: &str| {
        let (name, value) = argument.split_once('=').unwrap();
        let value = match (name, value.parse::<i64>()) {
            ("insert_line", Ok(line)) => line.into(),
            _ if value == "null" => Value::Null,
            _ => value.into(),
        };
        (name.to_owned(), value)
    };
    let arguments = text.split("; ").filter(|text| !text.is_empty());
    arguments.map(argument).collect::<Map<_, _>>().into()
}

/// Content of a file, in which `<ff>` stands for a byte.
fn bytes(text: &str) -> Vec<u8> {
    let mut pieces = text.split('<');
    let mut bytes = pieces.next().unwrap().as_bytes().to_vec();
    for piece in pieces {
        let (byte, rest) = piece.split_once('>').unwrap();
        bytes.push(u8::from_str_radix(byte, 16).unwrap());
        bytes.extend(rest.as_bytes());
    }
    bytes
}

fn check<'a>(cases: impl Iterator<Item = Case<'a>>) {
    let cases: Vec<_> = cases.collect();
    for fixture in all_users() {
        for case in &cases {
            fixture.clear();
            if case.before != "-" {
                fixture.put("f", &bytes(case.before));
            }
            let mut args = case.args.clone();
            let path = fixture.fill(args["path"].as_str().unwrap_or("{}/f"));
            args["path"] = path.as_str().into();
            let diff = match case.hunks {
                "" => String::new(),
                hunks => format!("--- {path}\n+++ {path}\n{hunks}"),
            };
            let expected = json!({
                "message": format!("I edited the file {path}."),
                "observation": "edit",
                "content": fixture.fill(&case.content),
                "extras": {
                    "path": path,
                    "prev_exist": false,
                    "old_content": args["old_str"],
                    "new_content": args["new_str"],
                    "impl_source": "oh_aci",
                    "diff": diff,
                    "_diff_cache": null,
                },
            });
            let answer = fixture.act("edit", &args);
            assert_eq!(answer, expected, "{} as {}", case.section, fixture.uid());
            let after = std::fs::read(fixture.path("f")).ok();
            let expected = (case.after != "-").then(|| bytes(case.after));
            assert_eq!(after, expected, "{}", case.section);
        }
    }
}

/// Reads a file through the editor.
fn view(fixture: &ServerFixture, path: &str, range: &Value) -> Value {
    let args = json!({"path": fixture.fill(path), "impl_source": "oh_aci", "view_range": range});
    fixture.act("read", &args)
}
