//! The binary in images with few files.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{BINARY, KEY, TestProcess, content, copy_program, is_root, pass_on, set_mode};
use crate::conformance::environment::in_mount_namespace;
use crate::supervise::{init, start, supervise_command};

const BUSYBOX: &str = "/bin/busybox";
/// Runs a program in a root with the devices and processes of this machine.
const ENTER: &str = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" || exit
    exec chroot \"$@\"";

/// A server in a root of its own, without `HOME`.
pub(crate) struct MinimalRoot {
    pub(crate) process: TestProcess,
    root: TempDir,
}

impl MinimalRoot {
    /// Has the server and nothing else. Prints SKIPPED without root.
    fn empty(test: &str, user: &str) -> Option<Self> {
        is_root(test).then(|| Self::serve(tempfile::tempdir().unwrap(), user))
    }

    /// Has busybox as well. Prints SKIPPED without root or busybox.
    pub(crate) fn busybox(test: &str, user: &str) -> Option<Self> {
        if !is_root(test) || !has_busybox(test) {
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        add_busybox(root.path());
        Some(Self::serve(root, user))
    }

    fn serve(root: TempDir, user: &str) -> Self {
        set_mode(&root, 0o755);
        for directory in ["dev", "proc"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        copy_program(Path::new(BINARY), &root.path().join("sandbox-executor"));
        let mut command = in_mount_namespace(ENTER);
        command
            .arg(root.path())
            .args(["/sandbox-executor", "serve", "0", "--working-dir", "/work"])
            .args(["--username", user])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("SESSION_API_KEY", KEY)
            .env("NO_CHANGE_TIMEOUT_SECONDS", "1")
            .env("SANDBOX_BIND_ADDRESS", "127.0.0.1");
        let process = TestProcess::start(&mut command);
        Self { process, root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn act(&self, action: &str, args: &Value) -> Value {
        self.process.act(&json!({"action": action, "args": args}))
    }
}

pub(crate) fn has_busybox(test: &str) -> bool {
    let is_there = Path::new(BUSYBOX).exists();
    if !is_there {
        eprintln!("SKIPPED {test}: no {BUSYBOX}");
    }
    is_there
}

/// Adds busybox with all its programs.
pub(crate) fn add_busybox(root: &Path) {
    let bin = root.join("bin");
    fs::create_dir(&bin).unwrap();
    copy_program(Path::new(BUSYBOX), &bin.join("busybox"));
    let list = Command::new(BUSYBOX).arg("--list").output().unwrap();
    for program in String::from_utf8(list.stdout).unwrap().lines() {
        if program != "busybox" {
            symlink("busybox", bin.join(program)).unwrap();
        }
    }
}

/// Runs `chroot ROOT /sandbox-executor supervise …`.
fn supervise_in(root: &Path) -> TestProcess {
    copy_program(Path::new(BINARY), &root.join("sandbox-executor"));
    let inner = supervise_command("/sandbox-executor", Path::new("/run/sandbox"));
    let mut command = Command::new("/usr/sbin/chroot");
    command.arg(root).arg(inner.get_program()).env_clear();
    TestProcess::start(pass_on(&inner, &mut command).stdin(Stdio::null()))
}

#[test]
fn supervisor_runs_in_empty_root() {
    if !is_root("supervisor_runs_in_empty_root") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut process = supervise_in(root.path());
    start(&process, &init(&["/sandbox-executor", "--version"]));
    let mut output = String::new();
    process.output.read_to_string(&mut output).unwrap();
    assert!(output.starts_with("sandbox-executor "), "{output}");
    assert_eq!(process.wait().code(), Some(0));
    assert!(root.path().join("run/sandbox/init").exists());
}

#[test]
fn supervisor_runs_shell_of_busybox_root() {
    let test = "supervisor_runs_shell_of_busybox_root";
    if !is_root(test) || !has_busybox(test) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    add_busybox(root.path());
    let mut process = supervise_in(root.path());
    let mut init = init(&["sh", "-c", "read line; echo \"[$line] $PWD\"; exit 6"]);
    init.working_dir = "/workspace".to_owned();
    start(&process, &init);
    assert_eq!(process.line(), "[] /workspace");
    assert_eq!(process.wait().code(), Some(6));
}

#[test]
fn server_works_without_shell_until_one_is_added() {
    let test = "server_works_without_shell_until_one_is_added";
    for (user, known) in [("root", "0\n/"), ("openhands", "1000\n/home/openhands")] {
        let Some(image) = MinimalRoot::empty(test, user) else {
            return;
        };
        let server = &image.process;
        assert_eq!(server.get("/alive").status, 200);
        assert_eq!(server.get("/server_info").json()["shell"], "none");
        let missing = "there is no shell in this image: neither bash nor sh was found";
        let answer = server.run("echo hello");
        assert_eq!(answer["observation"], "error");
        assert_eq!(answer["content"], missing);
        for args in [json!({"hidden": true}), json!({"is_static": true})] {
            let mut args = args;
            args["command"] = json!("pwd");
            assert_eq!(content(&image.act("run", &args)), missing);
        }
        image.act("write", &json!({"path": "a.txt", "content": "one\ntwo"}));
        let edit = json!({"path": "/work/a.txt", "command": "str_replace", "old_str": "two",
            "new_str": "three"});
        assert!(content(&image.act("edit", &edit)).contains("has been edited"));
        assert_eq!(
            content(&image.act("read", &json!({"path": "a.txt"}))),
            "one\nthree\n"
        );
        assert_eq!(server.keyed("POST /list_files", "{}").body, "[\"a.txt\"]");
        let mut archive = Vec::new();
        let mut download = server.send_keyed("GET /download_files?path=/work", "");
        download.read_to_end(&mut archive).unwrap();
        assert!(archive.starts_with(b"HTTP/1.1 200 OK"));
        if has_busybox(test) {
            add_busybox(image.root.path());
            assert_eq!(
                server.output("cat a.txt; id -u; echo ~"),
                format!("one\nthree\n{known}")
            );
            assert_eq!(server.get("/server_info").json()["shell"], "sh");
        }
    }
}
