//! Finding and ending what an earlier process of the same state directory left behind.
//!
//! Containers die with their node, but a command can opt out of that (any change of user does).
//! Each has the node's marker mounted, which it can neither unmount nor hide.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::bwrap::MARKER_DIR;

const PAUSE: Duration = Duration::from_millis(10);
const PATIENCE: u32 = 500;

/// Kills every process in a container of node `tag`, and waits until they are gone.
pub(crate) async fn kill_containers(tag: &str) {
    for _ in 0..PATIENCE {
        let left = containers(tag);
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Nothing signals the end of processes that are not our children.
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!("containers of an earlier run do not end");
}

fn containers(tag: &str) -> Vec<Pid> {
    let marker = format!(" {MARKER_DIR}/{tag} ");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let inside = pids.filter(|pid| {
        fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .is_ok_and(|text| text.contains(&marker))
    });
    inside.filter_map(Pid::from_raw).collect()
}
