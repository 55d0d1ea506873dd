//! The processes below a root, by `/proc`.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Processes of a tree, the root first, and parents before their children.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pub(crate) pids: Vec<i32>,
    /// Those that a signal had stopped.
    stopped: Vec<i32>,
}

impl ProcessTree {
    /// Reads the tree; `None` if the root does not exist.
    pub(crate) fn read(root: i32) -> Option<Self> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let mut states = HashMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if let Some((state, parent)) = state_and_parent(pid) {
                children.entry(parent).or_default().push(pid);
                states.insert(pid, state);
            }
        }
        states.get(&root)?;
        let mut pids = vec![root];
        let mut next = 0;
        while let Some(pid) = pids.get(next) {
            pids.extend(children.remove(pid).unwrap_or_default());
            next += 1;
        }
        let stopped = pids.iter().filter(|pid| states.get(pid) == Some(&'T'));
        Some(Self {
            stopped: stopped.copied().collect(),
            pids,
        })
    }

    /// Lowest and highest number of the processes and their threads.
    pub(crate) fn pid_range(&self) -> (i32, i32) {
        let threads = self.pids.iter().flat_map(|pid| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            let names = tasks.into_iter().flatten().flatten();
            names.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok())
        });
        let all = threads.chain(self.pids.iter().copied());
        all.fold((i32::MAX, 0), |(low, high), pid| {
            (low.min(pid), high.max(pid))
        })
    }

    /// Returns whether a debugger has attached to a process. CRIU only sees that it cannot attach.
    pub(crate) fn is_traced(&self) -> bool {
        self.pids.iter().any(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let mut tracers = status
                .lines()
                .filter_map(|line| line.strip_prefix("TracerPid:"));
            tracers.any(|tracer| tracer.trim() != "0")
        })
    }

    /// Lets processes go on that stand still now and did not when the tree was read.
    pub(crate) fn resume_stopped(&self) {
        for pid in self.pids.iter().filter(|pid| !self.stopped.contains(pid)) {
            if state_and_parent(*pid).is_some_and(|(state, _)| state == 'T') {
                signal(*pid, Signal::CONT);
            }
        }
    }

    /// Ends all processes, the root last, so that none of them gets another parent before.
    pub(crate) fn kill(&self) {
        for pid in self.pids.iter().rev() {
            signal(*pid, Signal::KILL);
        }
    }
}

/// Returns whether the number is that of a process or thread.
pub(crate) fn exists(pid: i32) -> bool {
    state_and_parent(pid).is_some()
}

/// Returns whether a process is a child of this one.
pub(crate) fn is_own_child(pid: i32) -> bool {
    let own = rustix::process::getpid().as_raw_pid();
    state_and_parent(pid).is_some_and(|(_, parent)| parent == own)
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // A process that ended meanwhile needs none.
        let _ = kill_process(pid, signal);
    }
}

/// State letter and parent by `/proc/PID/stat`, whose second field may contain spaces.
fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tree_has_children_after_their_parents() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & exec sleep 60"])
            .spawn()
            .unwrap();
        let root = shell.id().cast_signed();
        let mut tree = ProcessTree::read(root).unwrap();
        while tree.pids.len() < 2 {
            std::thread::yield_now();
            tree = ProcessTree::read(root).unwrap();
        }
        assert_eq!(tree.pids[0], root);
        let (low, high) = tree.pid_range();
        assert!(low <= root && high >= tree.pids[1]);
        assert!(is_own_child(root) && !is_own_child(tree.pids[1]));
        tree.kill();
        shell.wait().unwrap();
        assert!(ProcessTree::read(root).is_none());
    }
}
