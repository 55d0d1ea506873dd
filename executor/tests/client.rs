//! Starts the binary and sends requests, blocking and without an HTTP library, so that tests
//! control the bytes on the wire.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_sandbox-executor");
pub(crate) const KEY: &str = "secret-session-key";
pub(crate) const SESSION_KEY: (&str, &str) = ("X-Session-API-Key", KEY);

pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Status and body.
    pub(crate) fn parts(&self) -> (u16, &str) {
        (self.status, &self.body)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }
}

/// A process that has printed its address. Ends with the test.
pub(crate) struct TestProcess {
    pub(crate) child: Child,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl TestProcess {
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

    pub(crate) fn request(
        &self,
        head: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpResponse {
        request(self.address, head, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        self.request(&format!("GET {path}"), &[], b"")
    }

    /// Sends a request with the session key.
    pub(crate) fn keyed(&self, head: &str, body: &str) -> HttpResponse {
        self.request(head, &[SESSION_KEY], body.as_bytes())
    }

    /// Sends a request with the session key and does not wait for the response.
    pub(crate) fn send_keyed(&self, head: &str, body: &str) -> TcpStream {
        send(self.address, head, &[SESSION_KEY], body.as_bytes())
    }

    /// Posts a raw body to `/execute_action`.
    pub(crate) fn post(&self, body: &str) -> HttpResponse {
        self.keyed("POST /execute_action", body)
    }

    /// State of a plugin in `/server_info`.
    pub(crate) fn plugin_state(&self, plugin: &str) -> Value {
        self.get("/server_info").json()["plugins"][plugin].clone()
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

    /// Output of a command.
    pub(crate) fn output(&self, command: &str) -> String {
        content(&self.run(command)).to_owned()
    }

    /// Calls `during` while a command reads from a pipe in `directory`, that of the shell. Returns
    /// the observation of the command.
    pub(crate) fn while_waiting(&self, directory: &Path, during: impl FnOnce()) -> Value {
        self.run("mkfifo gate");
        let args = json!({"command": "cat gate", "blocking": true});
        let wait = json!({"action": "run", "args": args, "timeout": 60});
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| self.act(&wait));
            let gate = open_gate(&directory.join("gate"));
            during();
            drop(gate);
            waiting.join().unwrap()
        })
    }

    /// Runs with a hard time limit of 0.2 seconds.
    pub(crate) fn run_briefly(&self, command: &str) -> Value {
        let args = json!({"command": command, "blocking": true});
        self.act(&json!({"action": "run", "args": args, "timeout": 0.2}))
    }

    /// Peak memory in KiB.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// A field of the status in KiB.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap();
        let field = status.lines().find_map(|line| line.strip_prefix(name));
        let number = field.unwrap().trim().trim_end_matches(" kB");
        number.parse().unwrap()
    }

    pub(crate) fn input(&self, text: &str) -> Value {
        let args = json!({"command": text, "is_input": true, "blocking": true});
        self.act(&json!({"action": "run", "args": args, "timeout": 60}))
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// Starts a server with a key.
pub(crate) fn serve(working_dir: &Path) -> TestProcess {
    TestProcess::start(&mut serve_command(working_dir, &[]))
}

pub(crate) fn serve_command(working_dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "0", "--username", "root", "--working-dir"])
        .arg(working_dir)
        // Its folder of downloads would be in each listing.
        .arg("--no-enable-browser")
        .args(flags)
        .env("SESSION_API_KEY", KEY)
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1")
        // Start-up files of the current user are not under test.
        .env("HOME", working_dir);
    command
}

/// Passes arguments and variables of one command on to another.
pub(crate) fn pass_on<'a>(inner: &Command, outer: &'a mut Command) -> &'a mut Command {
    let variables = inner
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    outer.args(inner.get_args()).envs(variables)
}

/// Copies a program in a separate process. A process that another test forks could inherit a
/// descriptor open for writing, and such a file cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

/// Waits without a limit; nextest ends a test that hangs.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// Opens a pipe for writing, once another process reads from it.
pub(crate) fn open_gate(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

pub(crate) fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Mode and uid of a file.
pub(crate) fn mode_and_owner(path: impl AsRef<Path>) -> (u32, u32) {
    let found = fs::metadata(path).unwrap();
    (found.mode() & 0o7777, found.uid())
}

/// Returns whether the test runs as root. Prints SKIPPED if not.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED {test}: needs root");
    }
    is_root
}

pub(crate) fn content(answer: &Value) -> &str {
    answer["content"].as_str().unwrap()
}

pub(crate) fn request(
    address: SocketAddr,
    head: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    receive(send(address, head, headers, body))
}

/// Sends a request; `receive` reads the response.
pub(crate) fn send(
    address: SocketAddr,
    head: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let headers = headers.iter();
    let lines: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let headers = lines.concat();
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

pub(crate) fn receive(mut stream: TcpStream) -> HttpResponse {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    HttpResponse {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Reads a message up to the empty line after its headers.
pub(crate) fn read_head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head
}

pub(crate) fn next_line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
