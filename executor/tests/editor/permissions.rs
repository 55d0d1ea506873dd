//! Rights of the editor, properties of files that it keeps, and unsupported forms of `edit`.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::client::{content, is_root, mode_and_owner, set_mode};
use crate::fixture::{ServerFixture, all_users};

#[test]
fn modes_owners_and_links_survive_edits() {
    for fixture in all_users() {
        fixture.put("f", b"a\n");
        fixture.put("other", b"");
        set_mode(fixture.path("f"), 0o751);
        symlink("f", fixture.path("link")).unwrap();
        for args in [
            json!({"command": "str_replace", "old_str": "a", "new_str": "b"}),
            json!({"command": "insert", "insert_line": 0, "new_str": "x"}),
            json!({"command": "undo_edit"}),
        ] {
            let mut args = args;
            args["path"] = fixture.fill("{}/link").into();
            let answer = fixture.act("edit", &args);
            assert!(!content(&answer).starts_with("ERROR"), "{answer}");
            // Section 12, rule 15: the Python server sets mode 0600 and owner root.
            let kept = mode_and_owner(fixture.path("f"));
            assert_eq!(kept, (0o751, fixture.uid()));
            assert!(fixture.path("link").is_symlink());
        }
        std::fs::hard_link(fixture.path("f"), fixture.path("second")).unwrap();
        let path = fixture.path("f");
        fixture.act(
            "edit",
            &json!({"command": "str_replace", "path": path, "old_str": "b", "new_str": "c"}),
        );
        assert_eq!(std::fs::read(fixture.path("second")).unwrap(), b"c\n");
        let new = fixture.fill("{}/new");
        let create = json!({"command": "create", "path": new, "file_text": ""});
        fixture.act("edit", &create);
        assert_eq!(mode_and_owner(new), (0o644, fixture.uid()));
    }
}

#[test]
fn edits_have_the_sandbox_users_rights() {
    if !is_root("edits_have_the_sandbox_users_rights") {
        return;
    }
    let fixture = ServerFixture::new("nobody");
    let closed = fixture.root.parent().unwrap().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("secret"), "root's\n").unwrap();
    set_mode(&closed, 0o700);
    let open = fixture.root.parent().unwrap().join("open");
    std::fs::write(&open, "root's\n").unwrap();
    symlink(&open, fixture.path("link")).unwrap();
    let run = |args: Value| content(&fixture.act("edit", &args)).to_owned();
    let denied = |path: &str, operation: &str| {
        format!(
            "ERROR:\nRan into [Errno 13] Permission denied: '{path}' while trying to {operation} {path}"
        )
    };
    let edit = |path: &str| {
        run(json!({"command": "str_replace", "path": path, "old_str": "root", "new_str": "me"}))
    };
    let secret = closed.join("secret").display().to_string();
    let view = run(json!({"command": "view", "path": secret}));
    assert_eq!(view, denied(&secret, "read"));
    for path in [open.clone(), fixture.path("link")] {
        let path = path.display().to_string();
        assert_eq!(edit(&path), denied(&path, "write to"));
    }
    assert_eq!(std::fs::read(&open).unwrap(), b"root's\n");
    // A writable file of another user is written in place.
    set_mode(&open, 0o666);
    let answer = edit(open.to_str().unwrap());
    assert!(!answer.starts_with("ERROR"), "{answer}");
    assert_eq!(std::fs::read(&open).unwrap(), b"me's\n");
    assert_eq!(mode_and_owner(&open).1, 0);
}

#[test]
fn unsupported_forms_of_edit_fail_as_in_the_python_server() {
    let fixture = ServerFixture::new("root");
    let check = |args: Value, error: &str| {
        let action = json!({"action": {"action": "edit", "args": args}});
        let answer = fixture.post(&action.to_string());
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(answer.status == 500 && detail.ends_with(error), "{detail}");
    };
    // Section 2.3: the Python server asserts that clients do not send such edits.
    let by_model = json!({"path": "/f", "impl_source": "llm_based_edit", "content": "x", "start": 1, "end": -1});
    check(by_model, "Internal server error: ");
    let missing = "FileEditAction.__init__() missing 1 required positional argument: 'path'";
    check(json!({"command": "view"}), missing);
    // Section 3.2: arguments of line ranges are ignored.
    let path = fixture.fill("{}/f");
    let args = json!({"command": "create", "path": path, "file_text": "x", "content": "ignored", "start": 5, "end": 9, "security_risk": -1, "thought": ""});
    let created = format!("File created successfully at: {path}");
    assert_eq!(fixture.act("edit", &args)["content"], created);
}

#[test]
fn concurrent_edits_of_one_file_all_count() {
    let fixture = ServerFixture::new("root");
    fixture.put("f", b"");
    std::thread::scope(|scope| {
        for number in 0..24 {
            let fixture = &fixture;
            scope.spawn(move || {
                let args = json!({"command": "insert", "path": fixture.fill("{}/f"), "insert_line": 0, "new_str": format!("line {number}")});
                fixture.act("edit", &args);
            });
        }
    });
    let text = std::fs::read_to_string(fixture.path("f")).unwrap();
    assert_eq!(text.lines().count(), 24, "{text}");
}
