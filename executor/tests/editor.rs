//! The editor over HTTP: spec 6.2 and 6.4, case by case, for every user that can be had.

mod changes;
mod refusals;
mod rights;
mod views;

use serde_json::{Value, json};

use crate::world::{World, everybody};

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

fn insert(line: impl Into<Value>, new: &str) -> Value {
    json!({"command": "insert", "insert_line": line.into(), "new_str": new})
}

/// `read` through the editor.
fn view(world: &World, path: &str, range: &Value) -> Value {
    let args = json!({"path": world.fill(path), "impl_source": "oh_aci", "view_range": range});
    world.act("read", &args)
}
