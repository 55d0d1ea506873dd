//! Starts the binary and talks to it. Blocking and without an HTTP library: what goes over the
//! wire is visible here.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_sandbox-executor");
pub(crate) const KEY: &str = "secret-session-key";

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }
}

/// A process that has printed where it listens. Ends with the test.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let line = next_line(&mut output);
        let address = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("unexpected first line {line:?}"))
            .replace("0.0.0.0", "127.0.0.1");
        Self {
            child,
            output,
            address: address.parse().unwrap(),
        }
    }

    pub(crate) fn line(&mut self) -> String {
        next_line(&mut self.output)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn request(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        request(self.address, head, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}"), &[], b"")
    }

    /// Posts a raw body to `/execute_action`.
    pub(crate) fn post(&self, body: &str) -> Answer {
        let key = [("X-Session-API-Key", KEY)];
        self.request("POST /execute_action", &key, body.as_bytes())
    }

    /// Executes an action that must be answered with an observation.
    pub(crate) fn act(&self, action: &Value) -> Value {
        let answer = self.post(&json!({"action": action}).to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    pub(crate) fn run(&self, command: &str) -> Value {
        self.act(&json!({"action": "run", "args": {"command": command}, "timeout": 60}))
    }

    /// Runs with a hard time limit of 0.2 seconds.
    pub(crate) fn run_briefly(&self, command: &str) -> Value {
        let args = json!({"command": command, "blocking": true});
        self.act(&json!({"action": "run", "args": args, "timeout": 0.2}))
    }

    /// Runs a command that stays running, until it has written `text`; all that it has written.
    pub(crate) fn run_until(&self, command: &str, text: &str) -> String {
        let mut written = String::new();
        let mut command = command;
        while !written.contains(text) {
            let answer = self.run_briefly(command);
            assert_eq!(answer["success"], false, "ended early: {answer}");
            written += answer["content"].as_str().unwrap();
            command = "";
        }
        written
    }

    /// The greatest memory that it has ever had, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn input(&self, text: &str) -> Value {
        let args = json!({"command": text, "is_input": true, "blocking": true});
        self.act(&json!({"action": "run", "args": args, "timeout": 60}))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// A port that nobody else takes meanwhile: not one of those that the system gives away, and no two
/// the same in one process. Others of their own processes begin elsewhere.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() * 101;
    loop {
        let number = u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (first + number) % 12_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A server with a key, in a working directory of its own.
pub(crate) fn serve(working_dir: &Path) -> Process {
    Process::start(&mut serve_command(working_dir, &[]))
}

pub(crate) fn serve_command(working_dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "0", "--username", "root", "--working-dir"])
        .arg(working_dir)
        .args(flags)
        .env("SESSION_API_KEY", KEY)
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1")
        // The start-up files of whoever runs the tests are not under test.
        .env("HOME", working_dir);
    command
}

pub(crate) fn request(
    address: SocketAddr,
    head: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    receive(send(address, head, headers, body))
}

/// The first half of a request that is answered later.
pub(crate) fn send(
    address: SocketAddr,
    head: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let headers: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let headers = headers.concat();
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

pub(crate) fn receive(mut stream: TcpStream) -> Answer {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: body.to_owned(),
    }
}

fn next_line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
