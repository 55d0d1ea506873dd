//! `read` and `write` over HTTP and the rights that they have.

mod read_write;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{TestProcess, serve, serve_command};

fn read(process: &TestProcess, path: &str) -> Value {
    process.act(&json!({"action": "read", "args": {"path": path}}))
}

fn write(process: &TestProcess, path: &str, content: &str) -> Value {
    let args = json!({"path": path, "content": content});
    process.act(&json!({"action": "write", "args": args}))
}

#[test]
fn relative_paths_follow_the_shell() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    let process = serve(directory.path());
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
    process.act(&json!({"action": "write", "args": range}));
    assert_eq!(read(&process, &path)["content"], "new\necho 1\n");
}

#[test]
fn actions_have_the_rights_of_the_sandbox_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED actions_have_the_rights_of_the_sandbox_user: needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "root's").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let made_by_root = directory.path().join("made-by-root");
    std::fs::write(&made_by_root, "root's").unwrap();
    let work = directory.path().join("work");
    let process = TestProcess::start(
        serve_command(&work, &["--username", "nobody"]).env("RUNTIME_USERNAME", "nobody"),
    );
    assert_eq!(process.run("whoami")["content"], "nobody");
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
    let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
    let uid = owner(&work);
    assert_ne!(uid, 0);
    assert_eq!(owner(&work.join("own")), uid);
    assert_eq!(owner(&work.join("own/file")), uid);
    assert_eq!(
        process.run("id -u; cat own/file")["content"],
        format!("{uid}\nx")
    );
}

fn denied(process: &TestProcess, action: &Value) {
    let answer = process.act(action);
    assert_eq!(answer["observation"], "error", "{answer}");
    let expected = "[Errno 13] Permission denied: '";
    assert!(
        answer["content"].as_str().unwrap().starts_with(expected),
        "{answer}"
    );
}
