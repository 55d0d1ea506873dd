//! The standalone binary as a user starts it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::binaries::{binary, root};
use crate::free_port::free_port;

/// With `make run`, cargo may have to link its programs before.
const READY_WITHIN: Duration = Duration::from_mins(8);

/// A running standalone process. Ends with SIGTERM when dropped.
#[derive(Debug)]
pub struct Standalone {
    child: Child,
    /// Lines that it has printed until it was ready.
    pub greeting: Vec<String>,
    /// Content of `state/env`.
    pub env: BTreeMap<String, String>,
    pub state: PathBuf,
}

impl Standalone {
    /// Starts on free ports, or on those of an earlier run of the same state directory, and waits
    /// until it says that it is ready.
    pub fn start(state: &Path, args: &[&str]) -> Self {
        Self::start_binary(&binary("sandbox-standalone"), state, args)
    }

    /// As [`Standalone::start`], with a given binary.
    pub fn start_binary(program: &Path, state: &Path, args: &[&str]) -> Self {
        let ports = state.join("ports-of-test");
        let (gateway, api) = match std::fs::read_to_string(&ports) {
            Ok(text) => {
                let (a, b) = text.split_once(' ').expect("two ports");
                (a.parse().expect("a port"), b.parse().expect("a port"))
            }
            Err(_) => (free_port(), free_port()),
        };
        std::fs::create_dir_all(state).expect("a state directory");
        std::fs::write(&ports, format!("{gateway} {api}")).expect("a writable state directory");
        let mut command = Command::new(program);
        command
            .args(["--listen", &format!("0.0.0.0:{gateway}")])
            .args(["--api-listen", &format!("127.0.0.1:{api}")])
            // The Pods of a test are the only ones, unless it asks for warm ones.
            .env("SANDBOX_WARM_PODS", "0")
            // Images of clients are the machine's own programs, unless a test has a registry.
            .env("SANDBOX_HOST_FALLBACK", (!has_registry(args)).to_string())
            .args(args)
            .arg("--state-dir")
            .arg(state);
        Self::spawn(command, state)
    }

    /// Waits until standalone, which this command starts, says that it is ready.
    pub(crate) fn spawn(mut command: Command, state: &Path) -> Self {
        command.stdout(Stdio::piped()).process_group(0);
        let mut started = Self {
            child: command.spawn().expect("standalone starts"),
            greeting: Vec::new(),
            env: BTreeMap::new(),
            state: state.into(),
        };
        started.greeting = wait_ready(&mut started.child);
        let env = std::fs::read_to_string(state.join("env")).expect("an env file");
        started.env = parse_env(&env);
        started
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Value beside this title in the text that it prints at its start.
    pub fn printed(&self, title: &str) -> &str {
        let mut lines = self.greeting.iter().map(|line| line.trim());
        let found = lines.find_map(|line| line.strip_prefix(title)?.strip_prefix("  "));
        found
            .unwrap_or_else(|| panic!("no {title}: {:?}", self.greeting))
            .trim()
    }

    /// Base of the runtime API.
    pub fn api(&self) -> &str {
        &self.env["SANDBOX_API_URL"]
    }

    /// Key of the runtime API.
    pub fn key(&self) -> &str {
        &self.env["SANDBOX_API_KEY"]
    }

    /// A command with the environment that a user has after `. .state/env`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(&self.env).current_dir(root());
        command
    }

    /// Runs a command in that environment; its output if it succeeds, else a panic that shows it.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self
            .command(program)
            .args(args)
            .output()
            .expect("a program");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{program} {args:?}: {}\n{stdout}\n{stderr}",
            output.status
        );
        stdout.into_owned()
    }

    /// Ends the process as Ctrl-C does and waits for it.
    pub fn stop(self) -> ExitStatus {
        self.signal("-TERM");
        self.wait()
    }

    /// Waits for its end, which something else causes.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("an exit status")
    }

    /// Ends the process without warning.
    pub fn kill(mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("an exit status");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args([signal, &id]).status();
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("-TERM");
            let _ = self.child.wait();
        }
    }
}

/// Returns the lines before the one that says that it is ready.
fn wait_ready(child: &mut Child) -> Vec<String> {
    let stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
    let (sender, ready) = sync_channel(1);
    std::thread::spawn(move || {
        let mut lines = stdout.lines().map_while(Result::ok);
        let mut is_ready = false;
        let greeting = lines.by_ref().take_while(|line| {
            // A failure is explained by what came before it.
            println!("{line}");
            is_ready = line.starts_with("Sandbox Operator is ready");
            !is_ready
        });
        let greeting: Vec<_> = greeting.collect();
        if is_ready {
            sender.send(greeting).ok();
        }
        // Its later output must not block it.
        lines.for_each(drop);
    });
    match ready.recv_timeout(READY_WITHIN) {
        Ok(greeting) => greeting,
        Err(RecvTimeoutError::Timeout) => panic!("standalone is not ready"),
        Err(RecvTimeoutError::Disconnected) => {
            panic!("standalone ended before it was ready: {:?}", child.wait())
        }
    }
}

fn has_registry(args: &[&str]) -> bool {
    args.contains(&"--insecure-registries")
}

fn parse_env(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("export "))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.trim_matches('\'').into()))
        .collect()
}
