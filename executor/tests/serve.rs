//! Start-up, keys, errors and shutdown of the server.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{BINARY, KEY, TestProcess, serve, serve_command};

#[test]
fn key_is_required_except_on_public_paths() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.get("/alive");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "{\"status\":\"ok\"}")
    );
    assert_eq!(process.get("/server_info").status, 200);
    for head in [
        "POST /execute_action",
        "GET /nope",
        "OPTIONS /execute_action",
    ] {
        for headers in [&[][..], &[("X-Session-API-Key", "wrong")][..]] {
            let answer = process.request(head, headers, b"{}");
            assert_eq!(answer.status, 403);
            assert_eq!(answer.body, "{\"detail\":\"Invalid API Key\"}");
        }
    }
}

#[test]
fn empty_key_disables_authentication() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let process = TestProcess::start(command.env_remove("SESSION_API_KEY"));
    assert_eq!(process.get("/nope").status, 404);
}

#[test]
fn errors_have_the_form_of_the_python_server() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let key = [("X-Session-API-Key", KEY)];
    let answer = process.request("GET /nope", &key, b"");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (404, "{\"detail\":\"Not Found\"}")
    );
}

#[test]
fn log_is_json_and_has_the_memory_when_requested() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = serve_command(directory.path(), &[]);
    command
        .env("LOG_JSON", "1")
        .env("RUNTIME_MEMORY_MONITOR", "yes")
        .stderr(std::fs::File::create(&log).unwrap());
    let process = TestProcess::start(&mut command);
    let has_memory = |line: &str| {
        let line = serde_json::from_str::<Value>(line).unwrap_or_default();
        let message = line["message"].as_str().unwrap_or_default();
        message.contains("memory of the sandbox")
    };
    while !std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .any(has_memory)
    {
        std::thread::yield_now();
    }
    drop(process);
}

#[test]
fn files_and_status_work_while_a_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("mkfifo gate; echo text > file");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| process.run("cat gate"));
        // Opens when the command has opened the other end.
        let gate = std::fs::OpenOptions::new()
            .write(true)
            .open(directory.path().join("gate"));
        assert_eq!(process.get("/server_info").json()["idle_time"], 0.0);
        let read = process.act(&json!({"action": "read", "args": {"path": "file"}}));
        assert_eq!(read["content"], "text\n");
        let apart = json!({"command": "pwd", "is_static": true, "hidden": true});
        let apart = process.act(&json!({"action": "run", "args": apart}));
        assert_eq!(apart["content"], directory.path().to_str().unwrap());
        drop(gate);
        assert_eq!(long.join().unwrap()["success"], true);
    });
}

/// Mounts a FUSE file system without a daemon at the first argument, then runs the rest. Any
/// access to the mount blocks until the server has ended.
const WITH_DEAD_MOUNT: &str = "
import ctypes, os, sys
fuse = os.open('/dev/fuse', os.O_RDWR)
os.set_inheritable(fuse, True)
options = f'fd={fuse},rootmode=40000,user_id=0,group_id=0'.encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b'dead', sys.argv[1].encode(), b'fuse', 0, options):
    raise OSError(ctypes.get_errno(), 'mount')
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn dead_mount_does_not_block_other_requests() {
    if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
        eprintln!("SKIPPED dead_mount_does_not_block_other_requests: needs root and /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dead = directory.path().join("dead");
    std::fs::create_dir(&dead).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "python3", "-c", WITH_DEAD_MOUNT])
        .arg(&dead)
        .args([
            BINARY,
            "serve",
            "0",
            "--username",
            "root",
            "--plugins",
            "vscode",
            "--working-dir",
        ])
        .arg(directory.path().join("work"))
        .env("SESSION_API_KEY", KEY)
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1")
        .env("VSCODE_PORT", crate::client::free_port().to_string())
        .env("OPENVSCODE_SERVER_ROOT", &dead);
    let mut process = TestProcess::start(&mut command);
    let servers = json!([{"name": "dead", "command": dead.join("program")}]).to_string();
    let headers = [("X-Session-API-Key", KEY)];
    let update = crate::client::send(
        process.address,
        "POST /update_mcp_server",
        &headers,
        servers.as_bytes(),
    );
    assert_eq!(process.run("echo hi")["content"], "hi");
    let problem = crate::client::receive(update).json()["router_error_log"].clone();
    assert!(
        problem.as_str().unwrap().contains("does not respond"),
        "{problem}"
    );
    assert_eq!(process.get("/alive").status, 200);
    process.signal(Signal::KILL);
    process.child.wait().unwrap();
}

#[test]
fn two_servers_are_isolated() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = directory.path().join(name);
        serve(&path)
    };
    let (first, second) = (make("a"), make("b"));
    std::thread::scope(|scope| {
        for (process, name) in [(&first, "a"), (&second, "b")] {
            scope.spawn(move || {
                process.run(&format!("NAME={name}"));
                for _ in 0..20 {
                    let answer = process.run("echo $NAME $(basename $PWD)");
                    assert_eq!(answer["content"], format!("{name} {name}"));
                }
            });
        }
    });
}
