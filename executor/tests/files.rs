//! `read` and `write` over HTTP and the rights that they have.

mod read_write;

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::client::{TestProcess, content, is_root, mode_and_owner, set_mode};
use crate::fixture::ServerFixture;

fn read(process: &TestProcess, path: &str) -> Value {
    process.act(&json!({"action": "read", "args": {"path": path}}))
}

fn write(process: &TestProcess, path: &str, content: &str) -> Value {
    let args = json!({"path": path, "content": content});
    process.act(&json!({"action": "write", "args": args}))
}

#[test]
fn relative_paths_follow_the_shell() {
    let process = ServerFixture::new("root");
    let root = process.root.display();
    process.run("mkdir sub; cd sub");
    let answer = write(&process, "deep/hello.sh", "echo 1");
    let path = format!("{root}/sub/deep/hello.sh");
    let expected = json!({
        "message": format!("I wrote to the file {path}."),
        "observation": "write",
        "content": "",
        "extras": {"path": path},
    });
    assert_eq!(answer, expected);
    let expected = json!({
        "message": format!("I read the file {path}."),
        "observation": "read",
        "content": "echo 1\n",
        "extras": {"path": path, "impl_source": "default"},
    });
    assert_eq!(read(&process, "./deep/hello.sh"), expected);
    let range = json!({"path": path, "content": "new", "start": 0, "end": 0});
    process.act("write", &range);
    assert_eq!(read(&process, &path)["content"], "new\necho 1\n");
}

#[test]
fn actions_have_the_rights_of_the_sandbox_user() {
    if !is_root("actions_have_the_rights_of_the_sandbox_user") {
        return;
    }
    let process = ServerFixture::new("nobody");
    let [secret, made_by_root] =
        ["secret", "made-by-root"].map(|name| process.root.with_file_name(name));
    std::fs::write(&secret, "root's").unwrap();
    set_mode(&secret, 0o600);
    std::fs::write(&made_by_root, "root's").unwrap();
    assert_eq!(process.output("whoami"), "nobody");
    let work = &process.root;
    symlink(&secret, work.join("link")).unwrap();
    denied(
        &process,
        &json!({"action": "read", "args": {"path": "link"}}),
    );
    let args = json!({"path": "link", "content": "mine now"});
    denied(&process, &json!({"action": "write", "args": args}));
    let args = json!({"path": made_by_root, "content": "mine now"});
    denied(&process, &json!({"action": "write", "args": args}));
    for path in [secret, made_by_root] {
        assert_eq!(std::fs::read_to_string(path).unwrap(), "root's");
    }
    write(&process, "own/file", "x");
    let (_, uid) = mode_and_owner(work);
    assert_ne!(uid, 0);
    for made in ["own", "own/file"] {
        assert_eq!(mode_and_owner(work.join(made)).1, uid);
    }
    let output = process.output("id -u; cat own/file");
    assert_eq!(output, format!("{uid}\nx"));
}

fn denied(process: &TestProcess, action: &Value) {
    let answer = process.act(action);
    assert_eq!(answer["observation"], "error", "{answer}");
    let expected = "[Errno 13] Permission denied: '";
    assert!(content(&answer).starts_with(expected), "{answer}");
}
