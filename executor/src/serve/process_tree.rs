//! Sets of related processes, read from `/proc`. Jobs of an interactive shell have process groups of
//! their own and may have left its session, so its group does not contain all of them.
//!
//! The server is the subreaper (`PR_SET_CHILD_SUBREAPER`) of its shells, so that no process escapes
//! the shutdown of the server and none stays a zombie.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::identity::Identity;

/// Rounds of listing, stopping and killing. Stopping comes first because of fork bombs.
const MAX_ROUNDS: usize = 100;
const ROUND_INTERVAL: Duration = Duration::from_millis(5);
/// Orphans often end together; they are reaped together.
const REAP_INTERVAL: Duration = Duration::from_millis(20);

/// Pids of children that the server waits for; their threads register them before reaping again.
static OWNED_CHILDREN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    ended: bool,
    /// CPU time, with that of reaped children.
    cpu_ticks: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ProcessSet {
    /// The members of a session, and all their descendants.
    Session(Pid),
    /// The leader and the members of a process group, and all their descendants.
    Group(Pid),
    /// All descendants of this process.
    Own,
}

impl ProcessSet {
    /// CPU time of the processes of the set and of their reaped children.
    pub(super) fn cpu_ticks(self) -> u64 {
        self.list().map(|process| process.cpu_ticks).sum()
    }

    /// Pids and anonymous resident bytes of the processes.
    pub(super) fn private_memory(self) -> Vec<(Pid, u64)> {
        let alive = self.alive().filter_map(Pid::from_raw);
        alive.map(|pid| (pid, anonymous_bytes(pid))).collect()
    }

    /// Kills the processes until none is left, including those that fork meanwhile.
    pub(super) async fn kill_all(self, identity: &Identity) {
        for _ in 0..MAX_ROUNDS {
            self.stop_and_kill();
            if self.alive().next().is_none() {
                return;
            }
            // Root without capabilities cannot kill processes of the user, but the user can.
            if identity.differs_from_server() {
                let _ = identity.run_unqueued(move || self.stop_and_kill()).await;
            }
            reap();
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    fn stop_and_kill(self) {
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in self.alive().filter_map(Pid::from_raw) {
                // The process may have ended by now.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }

    /// Pids of the processes of the set that have not ended.
    fn alive(self) -> impl Iterator<Item = i32> {
        let alive = self.list().filter(|process| !process.ended);
        alive.map(|process| process.pid)
    }

    fn list(self) -> impl Iterator<Item = Process> {
        let processes = all();
        let members = self.members(&processes);
        let listed = processes.into_iter();
        listed.filter(move |process| members.contains(&process.pid))
    }

    fn members(self, processes: &[Process]) -> BTreeSet<i32> {
        let own = rustix::process::getpid().as_raw_pid();
        let is_first = |process: &Process| match self {
            Self::Session(session) => process.session == session.as_raw_pid(),
            Self::Group(leader) => [process.pid, process.group].contains(&leader.as_raw_pid()),
            Self::Own => process.parent == own,
        };
        let mut found = BTreeSet::new();
        loop {
            let before = found.len();
            for process in processes {
                if is_first(process) || found.contains(&process.parent) {
                    found.insert(process.pid);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }
}

/// Registration of a child that the server waits for. Dropping it ends the registration.
#[derive(Debug)]
pub(super) struct OwnedChild(Option<i32>);

pub(super) fn register_child(pid: Option<u32>) -> OwnedChild {
    let pid = pid.map(u32::cast_signed);
    OWNED_CHILDREN.lock().extend(pid);
    OwnedChild(pid)
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            OWNED_CHILDREN.lock().remove(&pid);
        }
    }
}

/// Makes this process the parent of all orphans below it.
pub(super) fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Reaps orphans whenever a child ends, without end.
pub(super) async fn reap_orphans() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    while ended.recv().await.is_some() {
        reap();
        tokio::time::sleep(REAP_INTERVAL).await;
    }
    Ok(())
}

fn reap() {
    let own = rustix::process::getpid().as_raw_pid();
    for process in all() {
        let is_orphan = process.ended && process.parent == own;
        if is_orphan && !OWNED_CHILDREN.lock().contains(&process.pid) {
            // If the process is gone, it was not an orphan.
            let pid = Pid::from_raw(process.pid);
            let _ = pid.map(|pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG));
        }
    }
}

/// CPU ticks of all processes that this one can see, with those of reaped children, and their anonymous
/// resident bytes.
pub(super) fn usage_of_all() -> (u64, u64) {
    let processes = all();
    let ticks = processes.iter().map(|process| process.cpu_ticks).sum();
    let pids = processes.iter().filter_map(|one| Pid::from_raw(one.pid));
    (ticks, pids.map(anonymous_bytes).sum())
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        parse(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
    });
    processes.collect()
}

/// Parses fields 3 to 6 and 14 to 17, counted after the name, which may contain anything.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let mut next = || fields.next()?.parse().ok();
    let (parent, group, session) = (next()?, next()?, next()?);
    let times = fields.skip(7).take(4);
    Some(Process {
        pid,
        parent,
        group,
        session,
        ended,
        cpu_ticks: times.filter_map(|field| field.parse::<u64>().ok()).sum(),
    })
}

/// Resident memory that is not shared with files; 0 once the process has ended.
fn anonymous_bytes(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
    let status = status.unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: ProcessSet, processes: &[[i32; 4]]) -> Vec<i32> {
        let process = |[pid, parent, group, session]: [i32; 4]| Process {
            pid,
            parent,
            group,
            session,
            ended: false,
            cpu_ticks: 1,
        };
        let processes: Vec<_> = processes.iter().copied().map(process).collect();
        set.members(&processes).into_iter().collect()
    }

    #[test]
    fn session_includes_descendants_in_other_sessions() {
        let processes = [
            [99, 98, 98, 98],
            [98, 11, 98, 98],
            [1, 0, 1, 1],
            [10, 1, 10, 10],
            [11, 10, 10, 10],
            [12, 1, 10, 10],
            [20, 1, 20, 20],
        ];
        let session = ProcessSet::Session(Pid::from_raw(10).unwrap());
        assert_eq!(members(session, &processes), [10, 11, 12, 98, 99]);
    }

    #[test]
    fn group_includes_orphans_and_descendants_of_its_leader() {
        let group = ProcessSet::Group(Pid::from_raw(10).unwrap());
        let processes = [
            [10, 1, 9, 1],
            [11, 1, 10, 1],
            [12, 1, 12, 1],
            [13, 10, 13, 1],
        ];
        assert_eq!(members(group, &processes), [10, 11, 13]);
    }

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = "7 (a) b) Z 1 2 3 34816 5 6 70 71 72 73 100 20 3 4 20 0 1 0";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session), (1, 2, 3));
        assert_eq!((process.ended, process.cpu_ticks), (true, 127));
    }
}
