//! `read` and `write` over HTTP, and whose rights they have.

mod plain;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Process, serve, serve_command};

fn read(process: &Process, path: &str) -> Value {
    process.act(&json!({"action": "read", "args": {"path": path}}))
}

fn write(process: &Process, path: &str, content: &str) -> Value {
    let args = json!({"path": path, "content": content});
    process.act(&json!({"action": "write", "args": args}))
}

#[test]
fn files_follow_the_shells_directory() {
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
fn failures_are_told_in_the_originals_words() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    std::fs::write(directory.path().join("latin"), b"\xe9t\xe9\n").unwrap();
    std::fs::write(directory.path().join("binary"), b"\x00\xff\xfe").unwrap();
    let process = serve(directory.path());
    let error = |answer: Value| {
        assert_eq!(answer["observation"], "error");
        answer["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        error(read(&process, "hello.sh")),
        format!("File not found: {root}/hello.sh. Your current working directory is {root}.")
    );
    assert_eq!(
        error(read(&process, "latin")),
        format!("File could not be decoded as utf-8: {root}/latin.")
    );
    assert_eq!(
        error(read(&process, "/usr")),
        "Path is a directory: /usr. You can only read files"
    );
    assert_eq!(error(read(&process, "binary")), "ERROR_BINARY_FILE");
    assert_eq!(
        error(write(&process, "/usr", "")),
        "Path is a directory: /usr. You can only write to files"
    );
    assert_eq!(
        error(write(&process, "latin", "")),
        format!("File could not be decoded as utf-8: {root}/latin")
    );
}

#[test]
fn the_sandbox_user_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED the_sandbox_user_is_not_root: needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "root's").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let work = directory.path().join("work");
    let process = Process::start(
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
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "root's");
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

fn denied(process: &Process, action: &Value) {
    let answer = process.post(&json!({"action": action}).to_string());
    assert_eq!(answer.status, 500);
    assert!(
        answer.body.contains("[Errno 13] Permission denied: '"),
        "{}",
        answer.body
    );
}
