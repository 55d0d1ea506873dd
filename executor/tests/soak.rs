//! Many actions while other processes use the CPU: every response is correct, and the server leaks
//! neither memory nor descriptors.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::client::{TestProcess, content, serve_command};

const ACTIONS: usize = 2000;
const WARM_UP: usize = 200;
/// Timeout for connections to close and orphans to be reaped.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Allowed growth of the allocator, in KiB.
const MAX_GROWTH_KIB: u64 = 1 << 10;

/// Processes that only use CPU, until they are dropped.
pub(crate) struct CpuLoad(Vec<Child>);

impl CpuLoad {
    pub(crate) fn new(processes: usize) -> Self {
        let spin = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..processes).map(spin).collect())
    }

    /// Two processes for each CPU.
    pub(crate) fn full() -> Self {
        Self::new(2 * std::thread::available_parallelism().unwrap().get())
    }
}

impl Drop for CpuLoad {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Leaves the command running.
fn briefly(process: &TestProcess, command: &str) {
    let args = json!({"command": command, "blocking": true});
    process.act(&json!({"action": "run", "args": args, "timeout": 0.02}));
}

/// Sends one action of each kind in turn. Outputs of neighbors differ.
fn act(process: &TestProcess, number: usize) {
    match number % 10 {
        0 => {
            let output = process.output(&format!("echo one-{number}"));
            assert_eq!(output, format!("one-{number}"));
        }
        1 => {
            let answer = process.run(&format!(
                "for i in {{1..50}}; do echo $i-{number}; done; (exit {})",
                number % 100
            ));
            let lines: Vec<_> = (1..=50).map(|i| format!("{i}-{number}")).collect();
            assert_eq!(content(&answer), lines.join("\n"));
            assert_eq!(answer["extras"]["metadata"]["exit_code"], number % 100);
        }
        2 => {
            let args = json!({"path": "file", "content": format!("text {number}")});
            process.act(&json!({"action": "write", "args": args}));
        }
        3 => {
            let answer = process.act(&json!({"action": "read", "args": {"path": "file"}}));
            assert_eq!(content(&answer), format!("text {}\n", number - 1));
        }
        4 => assert_eq!(process.output("cat file"), format!("text {}", number - 2)),
        5 => {
            let output = process.output(&format!("cat << E\n{number}\nE"));
            assert_eq!(output, number.to_string());
        }
        6 => {
            let output = process.output("(sleep 0 &); sh -c 'sh -c : &'; echo orphans");
            assert_eq!(output, "orphans");
        }
        7 => {
            // Input that the program does not read must not affect the next command.
            briefly(process, "read -sn1 x");
            let answer = process.input("y");
            assert_eq!(answer["extras"]["metadata"]["exit_code"], 0);
        }
        8 if number % 100 == 8 => {
            let args = json!({"command": format!("echo apart {number}"), "is_static": true});
            let answer = process.act(&json!({"action": "run", "args": args, "timeout": 60}));
            assert_eq!(content(&answer), format!("apart {number}"));
        }
        8 if number % 100 == 58 => {
            briefly(process, "echo up; sleep 1000");
            assert_eq!(process.input("C-c")["extras"]["metadata"]["exit_code"], 130);
        }
        8 => assert_eq!(process.output("true"), ""),
        _ => {
            let output = process.output(&format!("seq 3000 | tr '\\n' ' '; echo {number}"));
            assert!(output.ends_with(&format!(" 3000 {number}")), "{output}");
        }
    }
}

/// Memory, descriptors and zombies of the server.
#[derive(Debug)]
struct Usage {
    /// Resident memory in KiB.
    rss: u64,
    /// Targets of the open descriptors.
    files: Vec<String>,
    zombies: usize,
}

impl Usage {
    fn of(process: &TestProcess) -> Self {
        let pid = process.child.id();
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        // A descriptor may be closed after it was listed.
        let targets = entries.flatten().map(|entry| fs::read_link(entry.path()));
        Self {
            rss: process.memory("VmRSS:"),
            files: targets
                .flatten()
                .map(|target| target.display().to_string())
                .collect(),
            zombies: zombies(pid),
        }
    }

    /// Waits until at most `files` descriptors are open and no child is a zombie.
    fn settled(process: &TestProcess, files: usize) -> Self {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let usage = Self::of(process);
            if usage.files.len() <= files && usage.zombies == 0 {
                return usage;
            }
            assert!(
                Instant::now() < deadline,
                "at most {files} files: {usage:#?}"
            );
            std::thread::yield_now();
        }
    }
}

fn zombies(parent: u32) -> usize {
    let parent = format!("\nPPid:\t{parent}\n");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let statuses =
        processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let zombies =
        statuses.filter(|status| status.contains("\nState:\tZ") && status.contains(&parent));
    zombies.count()
}

#[test]
fn two_thousand_actions_under_load_leak_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let process = TestProcess::start(&mut serve_command(directory.path(), &[]));
    // Descriptors without any connection.
    let files = Usage::of(&process).files.len();
    let load = CpuLoad::new(2);
    (0..WARM_UP).for_each(|number| act(&process, number));
    let before = Usage::settled(&process, files);
    (WARM_UP..ACTIONS).for_each(|number| act(&process, number));
    drop(load);
    let after = Usage::settled(&process, files);
    let (before, after) = (before.rss, after.rss);
    eprintln!("{files} files; {before} KiB, then {after} KiB");
    assert!(after <= before + MAX_GROWTH_KIB, "{after} KiB");
}
