//! The server around its actions: start-up, keys, errors, shutdown.

use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::client::{BINARY, KEY, Process, serve, serve_command};

#[test]
fn bad_command_lines_end_before_anything_listens() {
    for (flags, error) in [
        (
            &["--plugins", "jupyter", "nope"][..],
            "Plugin nope not found",
        ),
        (&["--working-dir", "relative"][..], "not absolute"),
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
fn the_key_guards_all_but_the_open_paths() {
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
fn without_a_key_all_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let process = Process::start(command.env_remove("SESSION_API_KEY"));
    assert_eq!(process.get("/nope").status, 404);
}

#[test]
fn errors_have_the_originals_form() {
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
fn words_that_are_not_served_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.act(&json!({"action": "browse", "args": {"url": "http://x"}}));
    assert_eq!(answer["observation"], "error");
    assert!(
        answer["content"]
            .as_str()
            .unwrap()
            .contains("browse is not available")
    );
    assert_eq!(answer["extras"], json!({"error_id": ""}));
}

#[test]
fn server_info_tells_what_idle_means() {
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
fn a_long_command_blocks_neither_files_nor_status() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("mkfifo gate; echo text > file");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| process.run("cat gate"));
        // Opens when the command has opened its end.
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

#[test]
fn two_sandboxes_do_not_meet() {
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
fn nothing_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let temporary = directory.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let process = Process::start(command.env("TMPDIR", &temporary));
    let answer = process.run("sleep 1000 & setsid sleep 1000 & jobs -p; echo $$");
    let text = answer["content"].as_str().unwrap().to_owned();
    let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 3, "{text}");
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    // A killed process may still wait to be reaped by whoever inherited it.
    let alive = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert_eq!(pids.iter().filter(alive).count(), 0);
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}
