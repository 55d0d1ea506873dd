//! CPU time, memory and core affinity of the benchmark's processes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

/// A child process of this program in another role, with its address. Killed on drop.
pub(crate) struct ChildProcess {
    pub(crate) address: SocketAddr,
    /// Host name that it serves.
    pub(crate) host: String,
    child: Child,
}

impl ChildProcess {
    pub(crate) fn start(args: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().context("a pipe")?;
        BufReader::new(out).read_line(&mut line)?;
        let (address, host) = line.trim().split_once(' ').context("address and host")?;
        Ok(Self {
            address: address.parse()?,
            host: host.to_owned(),
            child,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of the processes.
pub(crate) fn resident_kib(processes: &[u32]) -> anyhow::Result<usize> {
    let resident = processes.iter().map(|process| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no VmRSS")?.parse::<usize>()?)
    });
    resident.sum()
}

/// CPU time of their threads so far.
pub(crate) fn cpu_time(processes: &[u32]) -> anyhow::Result<Duration> {
    let mut time = Duration::ZERO;
    for thread in threads(processes)? {
        let times = std::fs::read_to_string(thread.join("schedstat"))?;
        let running = times.split_whitespace().next().context("no time")?;
        time += Duration::from_nanos(running.parse()?);
    }
    Ok(time)
}

/// Directories of their threads in /proc.
fn threads(processes: &[u32]) -> anyhow::Result<Vec<PathBuf>> {
    let mut threads = Vec::new();
    for process in processes {
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            threads.push(thread?.path());
        }
    }
    Ok(threads)
}

/// Pins processes and their future children to one core until it is dropped.
pub(crate) struct Pinned(Vec<u32>);

impl Pinned {
    pub(crate) fn on_one_core(processes: Vec<u32>) -> anyhow::Result<Self> {
        let pinned = Self(processes);
        anyhow::ensure!(pinned.run_on("0"), "taskset failed");
        Ok(pinned)
    }

    fn run_on(&self, cores: &str) -> bool {
        let mut processes = self.0.iter().map(u32::to_string);
        processes.all(|process| {
            let mut command = Command::new("taskset");
            command
                .args(["-acp", cores, &process])
                .stdout(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // All that there are.
        self.run_on("0-1023");
    }
}
