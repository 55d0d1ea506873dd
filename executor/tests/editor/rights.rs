//! Whose rights the editor has, what it leaves as it was, and forms of `edit` that it does not
//! serve.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::{insert, replace};
use crate::world::{World, everybody};

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
            insert(0, "x"),
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
