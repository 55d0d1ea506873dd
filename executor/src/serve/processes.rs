//! Ends everything that has been started. Jobs of an interactive shell are process groups of their
//! own and may even have left its session, so killing its group is not enough.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::identity::Identity;

/// Rounds of looking and killing: who forks all the time is stopped first, then killed.
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    /// The members of a session, and all their descendants.
    Session(Pid),
    /// A process and all its descendants.
    Tree(Pid),
    /// The members of a process group, and all their descendants.
    Group(Pid),
    /// All descendants of this process.
    Own,
}

impl Family {
    /// Kills until nobody is left.
    pub(super) async fn end(self, identity: &Identity) {
        for _ in 0..ROUNDS {
            self.signal(Signal::STOP);
            self.signal(Signal::KILL);
            if self.alive().is_empty() {
                return;
            }
            // Root without capabilities may not kill what belongs to the user; the user may.
            let kill = move || {
                self.signal(Signal::STOP);
                self.signal(Signal::KILL);
            };
            if identity.is_other() {
                let _ = identity.run_at_once(kill).await;
            }
            super::children::reap();
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn signal(self, signal: Signal) {
        for pid in self.alive().into_iter().filter_map(Pid::from_raw) {
            // A process that is gone by now is what was wanted.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn alive(self) -> Vec<i32> {
        let processes = all();
        let found = self.members(&processes);
        let alive = processes.iter().filter(|process| !process.ended);
        let alive = alive.filter(|process| found.contains(&process.pid));
        alive.map(|process| process.pid).collect()
    }

    fn members(self, processes: &[Process]) -> BTreeSet<i32> {
        let own = rustix::process::getpid().as_raw_pid();
        let is_first = |process: &Process| match self {
            Self::Session(session) => process.session == session.as_raw_pid(),
            Self::Tree(root) => process.pid == root.as_raw_pid(),
            Self::Group(group) => process.group == group.as_raw_pid(),
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

/// Children of this process that nobody has waited for yet.
pub(super) fn ended_children() -> impl Iterator<Item = i32> {
    let own = rustix::process::getpid().as_raw_pid();
    let processes = all().into_iter();
    let ended = processes.filter(move |process| process.ended && process.parent == own);
    ended.map(|process| process.pid)
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

/// Fields 3, 4 and 6, counted after the name, which may contain anything.
fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let mut next = || fields.next()?.parse().ok();
    let (parent, group, session) = (next()?, next()?, next()?);
    Some(Process {
        pid,
        parent,
        group,
        session,
        ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_the_session_and_its_descendants() {
        let process = |pid, parent, session| Process {
            pid,
            parent,
            group: session,
            session,
            ended: false,
        };
        let processes = [
            process(99, 98, 98),
            process(98, 11, 98),
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 1, 10),
            process(20, 1, 20),
        ];
        let session = Family::Session(Pid::from_raw(10).unwrap());
        let found: Vec<i32> = session.members(&processes).into_iter().collect();
        assert_eq!(found, [10, 11, 12, 98, 99]);
    }

    #[test]
    fn who_has_lost_its_parent_is_still_in_its_group() {
        let process = |pid, parent, group| Process {
            pid,
            parent,
            group,
            session: 1,
            ended: pid == 10,
        };
        let processes = [process(10, 1, 10), process(11, 1, 10), process(12, 1, 12)];
        let of = |family: Family| family.members(&processes).into_iter().collect::<Vec<_>>();
        let root = Pid::from_raw(10).unwrap();
        assert_eq!(of(Family::Tree(root)), [10]);
        assert_eq!(of(Family::Group(root)), [10, 11]);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().any(|process| process.pid == pid));
    }
}
