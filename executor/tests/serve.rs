//! Start-up, keys, errors and shutdown of the server.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{
    BINARY, TestProcess, copy_program, is_root, pass_on, receive, serve, serve_command, set_mode,
    wait_until,
};
use crate::fixture::ServerFixture;

#[test]
fn key_is_required_except_on_public_paths() {
    let fixture = ServerFixture::new("root");
    let alive = fixture.get("/alive");
    assert_eq!(alive.parts(), (200, "{\"status\":\"ok\"}"));
    assert_eq!(fixture.get("/server_info").status, 200);
    for head in [
        "POST /execute_action",
        "GET /nope",
        "OPTIONS /execute_action",
    ] {
        for headers in [&[][..], &[("X-Session-API-Key", "wrong")]] {
            let answer = fixture.request(head, headers, b"{}");
            assert_eq!(answer.parts(), (403, "{\"detail\":\"Invalid API Key\"}"));
        }
    }
    // Errors have the form of the Python server.
    let unknown = fixture.keyed("GET /nope", "");
    assert_eq!(unknown.parts(), (404, "{\"detail\":\"Not Found\"}"));
}

#[test]
fn renewed_session_key_replaces_the_one_before() {
    let fixture = ServerFixture::new("root");
    let body = json!({"session_api_key": "another"}).to_string();
    assert_eq!(
        fixture.request("POST /renew", &[], body.as_bytes()).status,
        403
    );
    for wrong in ["{}", "[]", "", r#"{"session_api_key": 1}"#] {
        assert_eq!(fixture.keyed("POST /renew", wrong).status, 500, "{wrong}");
    }
    let empty = fixture.keyed("POST /renew", r#"{"session_api_key": ""}"#);
    assert_eq!(empty.status, 409);
    assert_eq!(fixture.keyed("POST /renew", &body).status, 204);
    assert_eq!(fixture.keyed("GET /nope", "").status, 403);
    let another = [("X-Session-API-Key", "another")];
    assert_eq!(fixture.request("GET /nope", &another, b"").status, 404);

    // Without a key anyone could set one.
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let process = TestProcess::start(command.env_remove("SESSION_API_KEY"));
    let answer = process.request("POST /renew", &[], body.as_bytes());
    assert_eq!(answer.status, 409, "{}", answer.body);
}

#[test]
fn empty_key_disables_authentication() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let process = TestProcess::start(command.env_remove("SESSION_API_KEY"));
    assert_eq!(process.get("/nope").status, 404);
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
    let text = || std::fs::read_to_string(&log).unwrap();
    wait_until(|| text().lines().any(has_memory));
    drop(process);
}

#[test]
fn files_and_status_work_while_a_command_runs() {
    let fixture = ServerFixture::new("root");
    fixture.run("echo text > file");
    let long = fixture.while_waiting(&fixture.root, || {
        assert_eq!(fixture.get("/server_info").json()["idle_time"], 0.0);
        let read = fixture.act("read", &json!({"path": "file"}));
        assert_eq!(read["content"], "text\n");
        let isolated = json!({"command": "pwd", "is_static": true, "hidden": true});
        let isolated = fixture.act("run", &isolated);
        assert_eq!(isolated["content"], fixture.fill("{}"));
    });
    assert_eq!(long["success"], true);
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
    if !is_root("dead_mount_does_not_block_other_requests") {
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        eprintln!("SKIPPED dead_mount_does_not_block_other_requests: needs /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let dead = directory.path().join("dead");
    std::fs::create_dir(&dead).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "python3", "-c", WITH_DEAD_MOUNT])
        .args([dead.as_os_str(), BINARY.as_ref()])
        .env("VSCODE_PORT", crate::free_port::free_port().to_string())
        .env("OPENVSCODE_SERVER_ROOT", &dead);
    let inner = serve_command(&directory.path().join("work"), &["--plugins", "vscode"]);
    let mut process = TestProcess::start(pass_on(&inner, &mut command));
    let servers = json!([{"name": "dead", "command": dead.join("program")}]).to_string();
    let update = process.send_keyed("POST /update_mcp_server", &servers);
    assert_eq!(process.output("echo hi"), "hi");
    let problem = receive(update).json()["router_error_log"].clone();
    let reason = "does not respond";
    assert!(problem.as_str().unwrap().contains(reason), "{problem}");
    let isolated = json!({"command": "pwd", "is_static": true, "cwd": dead});
    let refused = process.act(&json!({"action": "run", "args": isolated}));
    assert!(
        refused["content"].as_str().unwrap().contains(reason),
        "{refused}"
    );
    // The prompt reports this variable as the directory.
    process.output(&format!("PWD={}", dead.display()));
    process.run("exit 3");
    assert_eq!(
        process.output("pwd"),
        dead.with_file_name("work").to_str().unwrap()
    );
    assert_eq!(process.get("/alive").status, 200);
    process.signal(Signal::KILL);
    process.child.wait().unwrap();
}

#[test]
fn key_is_hidden_from_commands_of_the_same_user() {
    if !is_root("key_is_hidden_from_commands_of_the_same_user") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(&directory, 0o777);
    // The folder of build results may be closed to other users.
    let program = directory.path().join("sandbox-executor");
    copy_program(BINARY.as_ref(), &program);
    let mut command = Command::new(program);
    let inner = serve_command(&directory.path().join("work"), &[]);
    let process = TestProcess::start(pass_on(&inner, command.uid(65534).gid(65534)));
    let read = "cat /proc/$PPID/environ >/dev/null 2>&1 && echo readable || echo hidden";
    assert_eq!(process.output(read), "hidden");
    assert_eq!(
        process.output("cat /proc/$$/environ | tr -d '\\0' | grep -c PATH="),
        "1"
    );
}

#[test]
fn two_servers_are_isolated() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let process = serve(&directory.path().join(name));
            scope.spawn(move || {
                process.run(&format!("NAME={name}"));
                for _ in 0..20 {
                    let output = process.output("echo $NAME $(basename $PWD)");
                    assert_eq!(output, format!("{name} {name}"));
                }
            });
        }
    });
}
