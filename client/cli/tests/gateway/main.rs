//! The program with a scripted gateway.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod documents;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

/// Serves until the test ends. `answer` gets the first line and the body of a request and the URL
/// of the gateway; without an answer the client waits.
fn serve(answer: impl Fn(&str, &str, &str) -> Option<Value> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let own = url.clone();
    std::thread::spawn(move || {
        let mut waiting = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (line, body) = read(&stream);
            let Some(answer) = answer(&line, &body, &own) else {
                waiting.push(stream);
                continue;
            };
            let text = answer.to_string();
            let length = text.len();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n";
            write!(stream, "{head}content-length: {length}\r\n\r\n{text}").unwrap();
        }
    });
    url
}

fn read(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim_end().to_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (first, String::from_utf8(body).unwrap())
}

fn program(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    command
        .args(args)
        .env("SANDBOX_API_URL", url)
        .env("SANDBOX_API_KEY", "key")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Interrupts the command while it waits for the answer to a request with this first line; the body
/// of the request and the output.
fn interrupted(args: &[&str], request: &'static str) -> (Value, Output) {
    let (sender, bodies) = mpsc::channel();
    let url = serve(move |line, body, _| {
        if line.starts_with(request) {
            sender.send(body.to_owned()).unwrap();
            return None;
        }
        Some(json!({"snapshot_id": "saved", "status": "ready"}))
    });
    let child = program(&url, args).spawn().unwrap();
    let body = bodies.recv_timeout(Duration::from_mins(1)).unwrap();
    let kill = format!("kill -INT {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    (serde_json::from_str(&body).unwrap(), output)
}

#[test]
fn interrupted_fork_names_its_sandboxes() {
    let args = ["fork", "saved", "--count", "2"];
    let (body, output) = interrupted(&args, "POST /snapshots/saved/start ");
    let names = body["session_ids"].as_array().unwrap();
    assert_eq!(names.len(), 2, "{body}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("sandbox stop"), "{errors}");
    for name in names {
        assert!(errors.contains(name.as_str().unwrap()), "{name}: {errors}");
    }
}

#[test]
fn interrupted_start_names_its_sandbox() {
    let (body, output) = interrupted(&["run", "host"], "POST /start ");
    let name = body["session_id"].as_str().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains(&format!("`sandbox stop {name}`")),
        "{errors}"
    );
}

#[test]
fn key_of_a_page_is_not_an_argument_of_the_opener() {
    let url = serve(|line, _, url| {
        if line.contains("/vscode/connection_token") {
            return Some(json!({"token": "secret"}));
        }
        let root = format!("{url}/abcdefghijklmnop");
        Some(json!({
            "runtime_id": "abcdefghijklmnop", "session_id": "demo", "url": root,
            "session_api_key": "key", "status": "running", "pod_status": "Ready",
            "work_hosts": {format!("{root}/work-1"): 12000},
        }))
    });
    let folder = tempfile::tempdir().unwrap();
    let arguments = folder.path().join("arguments");
    let fifo = Command::new("mkfifo").arg(&arguments).status().unwrap();
    assert!(fifo.success());
    let opener = folder.path().join("xdg-open");
    let script = "#!/bin/sh\nprintf %s \"$*\" > \"$XDG_RUNTIME_DIR/arguments\"\n";
    fs::write(&opener, script).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let output = program(&url, &["open", "demo", "vscode"])
        .env("PATH", folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let address = format!("{url}/abcdefghijklmnop/vscode/?tkn=secret");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        address.clone() + "\n"
    );
    // An opener that never starts writes nothing.
    let mut read = Command::new("timeout");
    let read = read.arg("60").arg("cat").arg(&arguments).output().unwrap();
    let path = String::from_utf8(read.stdout).unwrap();
    assert!(!path.contains("secret"), "{path}");
    assert!(fs::read_to_string(&path).unwrap().contains(&address));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
