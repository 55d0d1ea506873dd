//! Cases of the editor over HTTP (`docs/specs/executor.md`, sections 6.2 and 6.4), for each user.

mod changes;
mod errors;
mod permissions;
mod views;

use serde_json::{Value, json};

use crate::fixture::{ServerFixture, all_users};

const CAT: &str = "Here's the result of running `cat -n` on ";
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

/// An edit that fails and does not change the file.
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
    for fixture in all_users() {
        for case in cases {
            fixture.clear();
            if let Some(before) = case.before {
                fixture.put("f", before);
            }
            let mut args = case.args.clone();
            args["path"] = fixture.fill(args["path"].as_str().unwrap_or("{}/f")).into();
            let answer = fixture.act("edit", &args);
            let expected = json!({
                "message": format!("I edited the file {}.", args["path"].as_str().unwrap()),
                "observation": "edit",
                "content": fixture.fill(&case.content),
                "extras": {
                    "path": args["path"],
                    "prev_exist": false,
                    "old_content": args["old_str"],
                    "new_content": args["new_str"],
                    "impl_source": "oh_aci",
                    "diff": fixture.fill(case.diff),
                    "_diff_cache": null,
                },
            });
            assert_eq!(answer, expected, "{} as {}", case.section, fixture.uid);
            let after = std::fs::read(fixture.path("f")).ok();
            assert_eq!(after.as_deref(), case.after, "{}", case.section);
        }
    }
}

fn replace(old: &str, new: &str) -> Value {
    json!({"command": "str_replace", "old_str": old, "new_str": new})
}

fn insert(line: impl Into<Value>, new: &str) -> Value {
    json!({"command": "insert", "insert_line": line.into(), "new_str": new})
}

/// Reads a file through the editor.
fn view(fixture: &ServerFixture, path: &str, range: &Value) -> Value {
    let args = json!({"path": fixture.fill(path), "impl_source": "oh_aci", "view_range": range});
    fixture.act("read", &args)
}
