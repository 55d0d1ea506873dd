//! Removal of cgroups, also of those that a killed node has left.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Kills the processes in the recorded cgroups and removes them.
pub(crate) async fn remove_recorded(record: &Path) {
    let Ok(paths) = fs::read_to_string(record) else {
        return;
    };
    for base in paths.lines().map(Path::new) {
        remove(base).await;
    }
    let _ = fs::remove_file(record);
}

pub(super) async fn remove(base: &Path) {
    for _ in 0..100 {
        if !base.exists() || remove_tree(base) {
            return;
        }
        // A killed process leaves its cgroup asynchronously.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tracing::warn!(path = %base.display(), "cannot remove cgroup");
}

fn remove_tree(base: &Path) -> bool {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            kill_all(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
    fs::remove_dir(base).is_ok()
}

fn kill_all(group: &Path) {
    use rustix::process::{Pid, Signal, kill_process};
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let pid = |line: &str| Pid::from_raw(line.parse().ok()?);
    for pid in processes.lines().filter_map(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
