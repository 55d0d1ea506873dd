//! Reaps orphans. The server is the subreaper (`PR_SET_CHILD_SUBREAPER`) of its shells, so that no
//! process escapes the shutdown of the server and none stays a zombie. Children that the server
//! waits for itself are registered here and left alone.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::process_tree;

/// Pids of children that the server waits for. The thread that starts a process registers it
/// before it reaps again.
static OWNED_CHILDREN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Orphans often end together; they are reaped together.
const REAP_INTERVAL: Duration = Duration::from_millis(20);

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

pub(super) fn reap() {
    for pid in process_tree::ended_children() {
        if OWNED_CHILDREN.lock().contains(&pid) {
            continue;
        }
        if let Some(pid) = Pid::from_raw(pid) {
            // If the process is gone, it was not an orphan.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
