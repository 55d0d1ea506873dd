//! The program with a scripted gateway.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Serves until the test ends. `answer` gets the first line and the body of a request and the URL of the
/// gateway; without an answer the client waits.
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
    let made = Command::new("mkfifo").arg(&arguments).status().unwrap();
    assert!(made.success());
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
    let path = fs::read_to_string(&arguments).unwrap();
    assert!(!path.contains("secret"), "{path}");
    assert!(fs::read_to_string(&path).unwrap().contains(&address));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
