//! The binary in images with few files.

use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::client::{BINARY, TestProcess, copy_program, is_root, pass_on};
use crate::supervise::{init, start, supervise_command};

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
    let busybox = Path::new("/bin/busybox");
    if !is_root("supervisor_runs_shell_of_busybox_root") {
        return;
    }
    if !busybox.exists() {
        eprintln!("SKIPPED supervisor_runs_shell_of_busybox_root: no /bin/busybox");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    copy_program(busybox, &bin.join("busybox"));
    symlink("busybox", bin.join("sh")).unwrap();
    let mut process = supervise_in(root.path());
    let mut init = init(&["sh", "-c", "read line; echo \"[$line] $PWD\"; exit 6"]);
    init.working_dir = "/workspace".to_owned();
    start(&process, &init);
    assert_eq!(process.line(), "[] /workspace");
    assert_eq!(process.wait().code(), Some(6));
}
