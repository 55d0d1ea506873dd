//! Sets of related processes, read from `/proc`. Jobs of an interactive shell have process groups of
//! their own and may have left its session, so its group does not contain all of them.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Pid;

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
    /// A process and all its descendants.
    Tree(Pid),
    /// The members of a process group, and all their descendants.
    Group(Pid),
    /// All descendants of this process.
    Own,
}

impl ProcessSet {
    /// CPU time of the processes of the set and of their reaped children.
    pub(super) fn cpu_ticks(self) -> u64 {
        let processes = all();
        let found = self.members(&processes);
        let members = processes
            .iter()
            .filter(|process| found.contains(&process.pid));
        members.map(|process| process.cpu_ticks).sum()
    }

    /// Pids of the processes of the set that have not ended.
    pub(super) fn alive(self) -> Vec<i32> {
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

/// Zombie children of this process.
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

fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &stat)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_includes_descendants_in_other_sessions() {
        let process = |pid, parent, session| Process {
            pid,
            parent,
            group: session,
            session,
            ended: false,
            cpu_ticks: 1,
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
        let session = ProcessSet::Session(Pid::from_raw(10).unwrap());
        let found: Vec<i32> = session.members(&processes).into_iter().collect();
        assert_eq!(found, [10, 11, 12, 98, 99]);
    }

    #[test]
    fn orphan_is_still_found_in_its_process_group() {
        let process = |pid, parent, group| Process {
            pid,
            parent,
            group,
            session: 1,
            ended: pid == 10,
            cpu_ticks: 0,
        };
        let processes = [process(10, 1, 10), process(11, 1, 10), process(12, 1, 12)];
        let of = |set: ProcessSet| set.members(&processes).into_iter().collect::<Vec<_>>();
        let root = Pid::from_raw(10).unwrap();
        assert_eq!(of(ProcessSet::Tree(root)), [10]);
        assert_eq!(of(ProcessSet::Group(root)), [10, 11]);
    }

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = "7 (a) b) Z 1 2 3 34816 5 6 70 71 72 73 100 20 3 4 20 0 1 0";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session), (1, 2, 3));
        assert_eq!((process.ended, process.cpu_ticks), (true, 127));
    }

    #[test]
    fn own_process_is_listed() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().any(|process| process.pid == pid));
    }
}
