//! Termination of containers that an earlier process of the same state directory left running.
//!
//! Containers die with their node, but a command can opt out by changing its user. The mounted
//! marker identifies them and cannot be unmounted.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::mount::MARKER_DIR;

const POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLLS: u32 = 500;

/// Kills every process in containers of node `tag`, and waits until they are gone.
pub(crate) async fn kill_containers(tag: &str) {
    for _ in 0..MAX_POLLS {
        let left = containers(tag);
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        // There is no notification for processes that are not our children.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    tracing::warn!("containers of an earlier run do not terminate");
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
