//! Rights of the editor, properties of files that it keeps, and unsupported forms of `edit`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::fixture::{ServerFixture, all_users};

#[test]
fn modes_owners_and_links_survive_edits() {
    for fixture in all_users() {
        fixture.put("f", b"a\n");
        fixture.put("other", b"");
        std::fs::set_permissions(fixture.path("f"), std::fs::Permissions::from_mode(0o751))
            .unwrap();
        symlink("f", fixture.path("link")).unwrap();
        let facts = || {
            let found = std::fs::metadata(fixture.path("f")).unwrap();
            (found.mode() & 0o7777, found.uid())
        };
        for args in [
            json!({"command": "str_replace", "old_str": "a", "new_str": "b"}),
            json!({"command": "insert", "insert_line": 0, "new_str": "x"}),
            json!({"command": "undo_edit"}),
        ] {
            let mut args = args;
            args["path"] = fixture.fill("{}/link").into();
            let answer = fixture.act("edit", &args);
            assert!(
                !answer["content"].as_str().unwrap().starts_with("ERROR"),
                "{answer}"
            );
            // Section 12, rule 15: the Python server sets mode 0600 and owner root.
            assert_eq!(facts(), (0o751, fixture.uid));
            assert!(fixture.path("link").is_symlink());
        }
        std::fs::hard_link(fixture.path("f"), fixture.path("second")).unwrap();
        fixture.act("edit", &json!({"command": "str_replace", "path": fixture.fill("{}/f"), "old_str": "b", "new_str": "c"}));
        assert_eq!(std::fs::read(fixture.path("second")).unwrap(), b"c\n");
        let new = fixture.fill("{}/new");
        let create = json!({"command": "create", "path": new, "file_text": ""});
        fixture.act("edit", &create);
        let found = std::fs::metadata(new).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o644, fixture.uid));
    }
}

#[test]
fn edits_have_the_sandbox_users_rights() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED edits_have_the_sandbox_users_rights: needs root");
        return;
    }
    let fixture = ServerFixture::new("nobody");
    let closed = fixture.root.parent().unwrap().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("secret"), "root's\n").unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let open = fixture.root.parent().unwrap().join("open");
    std::fs::write(&open, "root's\n").unwrap();
    symlink(&open, fixture.path("link")).unwrap();
    let run = |args: Value| {
        fixture.act("edit", &args)["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
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
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
    let answer = edit(open.to_str().unwrap());
    assert!(!answer.starts_with("ERROR"), "{answer}");
    assert_eq!(std::fs::read(&open).unwrap(), b"me's\n");
    assert_eq!(std::fs::metadata(&open).unwrap().uid(), 0);
}

#[test]
fn unsupported_forms_of_edit_fail_as_in_the_python_server() {
    let fixture = ServerFixture::new("root");
    let post = |args: Value| {
        let answer = fixture
            .process
            .post(&json!({"action": {"action": "edit", "args": args}}).to_string());
        (
            answer.status,
            answer.json()["detail"].as_str().unwrap().to_owned(),
        )
    };
    // Section 2.3: the Python server asserts that clients do not send such edits.
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
    // Section 3.2: arguments of line ranges are ignored.
    let path = fixture.fill("{}/f");
    let args = json!({"command": "create", "path": path, "file_text": "x", "content": "ignored", "start": 5, "end": 9, "security_risk": -1, "thought": ""});
    assert_eq!(
        fixture.act("edit", &args)["content"],
        format!("File created successfully at: {path}")
    );
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
