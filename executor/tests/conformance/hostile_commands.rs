//! Harmful commands: the server keeps responding, its memory stays bounded, and no process outlives
//! it (section 1.11).

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::environment::{CaseEnvironment, environments, in_mount_namespace};
use crate::client::{BINARY, TestProcess, content, copy_program, is_root, pass_on, serve_command};
use crate::plugins::is_alive;

/// Runs a command without the soft timeout.
fn patiently(process: &TestProcess, command: &str) -> Value {
    let args = json!({"command": command, "blocking": true});
    process.act(&json!({"action": "run", "args": args, "timeout": 600}))
}

/// Prints a long line while other requests are answered.
fn one_long_line(process: &TestProcess, bytes: usize) {
    let command = format!("head -c {bytes} /dev/zero | tr '\\0' x");
    std::thread::scope(|scope| {
        let printing = scope.spawn(|| patiently(process, &command));
        while !printing.is_finished() {
            assert_eq!(process.get("/alive").status, 200);
        }
        let answer = printing.join().unwrap();
        assert_eq!(content(&answer).len(), 30_047);
    });
}

#[test]
fn hostile_commands() {
    for environment in environments() {
        let process = environment.serve("hostile");
        one_long_line(&process, 128 << 20);
        assert!(process.peak() < 32 << 10, "{} KiB", process.peak());
        let large = format!("echo {} | wc -c", "x".repeat(10 << 20));
        assert_eq!(patiently(&process, &large)["content"], "10485761");
        let large = format!("cat << E | wc -l\n{}E", "line\n".repeat(1 << 20));
        assert_eq!(patiently(&process, &large)["content"], "1048576");
        assert_eq!(patiently(&process, "echo a\0b")["content"], "ab");
        let answer = patiently(&process, "head -c 3000000 /dev/urandom");
        assert_eq!(answer["extras"]["metadata"]["exit_code"], 0);
        let far = "printf '\\033[999999999B\\033[4000000000C\\033[5;5r\\033[9L\\033[9M\\033[9@x'";
        assert_eq!(patiently(&process, far)["content"], "x");
        process.run_briefly("yes");
        assert_eq!(process.get("/alive").status, 200);
        assert_eq!(process.input("C-c")["extras"]["metadata"]["exit_code"], 130);
        patiently(
            &process,
            "for i in {1..100}; do mkdir d; cd d; done; ln -s . loop; ls loop/loop/loop >/dev/null",
        );
        assert_eq!(patiently(&process, "cd; echo here")["content"], "here");
        let rss = process.memory("VmRSS:");
        assert!(rss < 200 << 10, "{rss} KiB");
    }
}

/// Runs as a separate user, because limits count all processes of a user on the machine.
#[test]
fn server_responds_during_fork_bomb() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let mut command = environment.command("bomb", &["--user-id", "61234"]);
    let process = TestProcess::start(&mut command);
    process.run("ulimit -u 100");
    let bomb = process.run_briefly(":(){ :|:& };:");
    assert_eq!(bomb["observation"], "run");
    assert_eq!(process.get("/alive").status, 200);
    assert_eq!(process.get("/server_info").status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    assert_eq!(alive_with_uid(61234), 0);
}

/// The scratch directory is on a file system of its own that a command fills up.
#[test]
fn full_disk_does_not_prevent_commands() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let disk = environment.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let server = environment.command("full", &[]);
    let mount = "mount -t tmpfs -o size=512k,mode=1777 none \"$TMPDIR\" && exec \"$@\"";
    let mut command = in_mount_namespace(mount);
    command.arg(server.get_program()).env_clear();
    let process = TestProcess::start(pass_on(&server, &mut command).env("TMPDIR", &disk));
    let answer = process.run("head -c 1M /dev/zero > $TMPDIR/fill");
    let is_full = content(&answer).ends_with("No space left on device");
    assert!(is_full, "{answer}");
    let still = process.run("echo still");
    assert_eq!(content(&still), "still", "4.15 without space on the disk");
    let isolated = json!({"command": "echo x", "is_static": true});
    let answer = process.act(&json!({"action": "run", "args": isolated, "timeout": 60}));
    assert_eq!(
        answer["observation"], "error",
        "4.12 a shell that cannot start: {answer}"
    );
    process.run("rm $TMPDIR/fill");
    let long = format!("echo {} | wc -c", "x".repeat(200_000));
    assert_eq!(process.output(&long), "200001");
    assert_eq!(process.output("echo short"), "short");
}

/// The server runs as a user of its own whose process limit is lowered to what runs already.
#[test]
fn process_limit_does_not_prevent_kill() {
    if !is_root("process_limit_does_not_prevent_kill") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("sandbox-executor");
    copy_program(Path::new(BINARY), &binary);
    let work = directory.path().join("work");
    std::fs::create_dir(&work).unwrap();
    for path in [directory.path(), &work] {
        std::os::unix::fs::chown(path, Some(61_235), Some(61_235)).unwrap();
    }
    let mut command = Command::new(&binary);
    command
        .uid(61_235)
        .gid(61_235)
        .env("TMPDIR", directory.path());
    let process = TestProcess::start(pass_on(&serve_command(&work, &[]), &mut command));
    process.run("sleep 1000 &");
    let mut limit = Command::new("prlimit");
    let pid = process.child.id().to_string();
    let limited = limit
        .args(["--nproc=1", "--pid", &pid])
        .uid(61_235)
        .gid(61_235)
        .status();
    assert!(limited.unwrap().success());
    let answer = process.run("kill %1; echo killed");
    assert!(content(&answer).starts_with("killed"), "4.15 {answer}");
    let args = json!({"path": "f", "content": "x"});
    let kind = process.act(&json!({"action": "write", "args": args}))["observation"].clone();
    assert_eq!(kind, "write", "6.3 without new threads");
}

fn alive_with_uid(uid: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let statuses =
        processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    let uid = format!("\nUid:\t{uid}\t");
    statuses
        .filter(|status| status.contains(&uid) && !status.contains("\nState:\tZ"))
        .count()
}

#[test]
fn shutdown_leaves_no_processes_and_files() {
    for environment in environments() {
        let temporary = environment.path("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let shared = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(&temporary, shared).unwrap();
        let mut command = environment.command("daemons", &[]);
        let process = TestProcess::start(command.env("TMPDIR", &temporary));
        // The second process has lost its parent and is a child of the server.
        let answer = process.run(
            "sleep 1001 & echo $!; setsid -w sh -c 'sleep 1002 & echo $!'; \
             (setsid sleep 1003 & echo $!); setsid sleep 1004 & jobs -p; echo $$",
        );
        let text = content(&answer);
        let is_pid = |line: &&str| line.parse::<u32>().is_ok();
        let pids: Vec<&str> = text.lines().filter(is_pid).collect();
        assert_eq!(pids.len(), 6, "{text}");
        process.signal(Signal::TERM);
        assert_eq!(process.wait().code(), Some(0));
        assert!(!pids.into_iter().any(is_alive), "{text}");
        assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
    }
}

#[test]
fn orphans_are_reaped() {
    let process = CaseEnvironment::plain().serve("orphans");
    let answer = process
        .run("sh -c 'sleep 0 & sleep 0 & echo $PPID'; (sleep 0.01 &); (true &); ps -o ppid= -p $$");
    let server = process.child.id().to_string();
    assert!(content(&answer).contains(&server), "{answer}");
    // Ends when no zombie is left.
    let wait = format!("while ps -o stat= --ppid {server} | grep -q Z; do :; done; echo none");
    assert_eq!(patiently(&process, &wait)["content"], "none");
}
