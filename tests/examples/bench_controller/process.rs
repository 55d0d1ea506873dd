//! Another process of this benchmark, and what the kernel says of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::time::Instant;

/// A process that has used no CPU worth mentioning for so long is at rest.
const IDLE_PERIOD: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// CPU time that says nothing: the kernel counts in ticks.
const TICK: Duration = Duration::from_millis(10);

/// A child; it ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program in another role, with one heap as in the chart.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::spawn(command.args(args).env("MALLOC_ARENA_MAX", "1"))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a program");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, lines) = channel();
        // Its output must not block it.
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that contains this; what follows it there.
    pub(crate) fn line(&self, what: &str) -> String {
        let found = self
            .lines
            .iter()
            .find_map(|line| Some(line.split_once(what)?.1.to_owned()));
        found.unwrap_or_else(|| panic!("it ended before it said {what:?}"))
    }

    /// Waits until it is at rest. How long after `begin` it was still busy.
    pub(crate) fn wait_idle_since(&self, begin: Instant) -> Duration {
        let mut busy = Instant::now();
        let mut used = self.cpu();
        while busy.elapsed() < IDLE_PERIOD {
            std::thread::sleep(POLL_INTERVAL);
            let now = self.cpu();
            if now > used + TICK {
                (busy, used) = (Instant::now(), now);
            }
        }
        busy - begin
    }

    /// CPU time so far, of all its threads.
    pub(crate) fn cpu(&self) -> Duration {
        cpu(&self.read("stat"))
    }

    /// Resident memory in bytes.
    pub(crate) fn rss(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most it ever was, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("a process")
    }
}

/// CPU time in the contents of a file `/proc/PID/stat`.
pub(crate) fn cpu(stat: &str) -> Duration {
    let fields = stat.rsplit_once(") ").expect("a stat").1;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks = ticks.map(|number| number.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
