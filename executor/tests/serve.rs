//! Start-up, keys, errors and shutdown of the server.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{BINARY, KEY, TestProcess, serve, serve_command};

#[test]
fn invalid_command_line_exits_before_listening() {
    for (flags, error) in [
        (
            &["--plugins", "jupyter", "nope"][..],
            "Plugin nope not found",
        ),
        (&["--working-dir", "relative"][..], "must be absolute"),
        (
            &["--no-enable-browser", "--browsergym-eval-env", "x"][..],
            "Browser environment is not enabled in config, but browsergym_eval_env is set",
        ),
        (
            &["--username", "bad:name"][..],
            "invalid user name 'bad:name'",
        ),
    ] {
        let output = Command::new(BINARY)
            .args(["serve", "0"])
            .args(flags)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(text.contains(error), "{flags:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}

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
    let answer = process.request("POST /alive", &key, b"");
    assert_eq!(answer.status, 405);
    assert_eq!(answer.body, "{\"detail\":\"Method Not Allowed\"}");
    let answer = process.post("{}");
    assert_eq!(answer.status, 422);
    assert_eq!(
        answer.body,
        "{\"detail\":\"Invalid request parameters\",\"errors\":\"[{'type': 'missing', \
         'loc': ('body', 'action'), 'msg': 'Field required', 'input': {}}]\"}"
    );
    let answer = process.post("{\"action\":{}}");
    assert_eq!(answer.status, 500);
    assert_eq!(
        answer.body,
        "{\"detail\":\"Internal server error: Unknown event type: {}\"}"
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
fn server_info_has_idle_time_and_resources() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let info = process.get("/server_info").json();
    assert!(info["uptime"].as_f64().unwrap() >= info["idle_time"].as_f64().unwrap());
    for pointer in [
        "cpu_percent",
        "memory/rss",
        "memory/vms",
        "memory/percent",
        "disk/total",
        "disk/used",
        "disk/free",
        "disk/percent",
        "io/read_bytes",
        "io/write_bytes",
    ] {
        let value = info.pointer(&format!("/resources/{pointer}"));
        assert!(value.is_some_and(serde_json::Value::is_number), "{pointer}");
    }
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

#[test]
fn shutdown_leaves_no_processes_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let temporary = directory.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let process = TestProcess::start(command.env("TMPDIR", &temporary));
    let answer = process.run("sleep 1000 & setsid sleep 1000 & jobs -p; echo $$");
    let text = answer["content"].as_str().unwrap().to_owned();
    let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 3, "{text}");
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    // A killed process may still be a zombie.
    let alive = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert_eq!(pids.iter().filter(alive).count(), 0);
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}
