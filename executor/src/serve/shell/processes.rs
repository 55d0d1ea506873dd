//! Ends everything that a shell has started. Jobs of an interactive shell are process groups of
//! their own and may even have left its session, so killing its group is not enough.

use std::fs;

use rustix::process::{Pid, Signal};

#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    session: i32,
}

/// Kills the shell that leads the session, the session's members, and all their descendants.
pub(super) fn kill_all_of(shell: Pid) {
    for pid in family(&all(), shell.as_raw_pid()) {
        if let Some(pid) = Pid::from_raw(pid) {
            // A process that is gone by now is what was wanted.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether the shell or anything it has started is alive.
pub(super) fn is_any_alive_of(shell: Pid) -> bool {
    !family(&all(), shell.as_raw_pid()).is_empty()
}

fn family(processes: &[Process], shell: i32) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    loop {
        let before = found.len();
        for process in processes {
            let belongs = process.session == shell || found.contains(&process.parent);
            if belongs && !found.contains(&process.pid) {
                found.push(process.pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

/// Fields 4 and 6, counted after the name, which may contain anything.
fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(1);
    let mut next = || fields.next()?.parse().ok();
    let (parent, _group, session) = (next()?, next()?, next()?);
    Some(Process {
        pid,
        parent,
        session,
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
            session,
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
        let mut found = family(&processes, 10);
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12, 98, 99]);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().any(|process| process.pid == pid));
    }
}
