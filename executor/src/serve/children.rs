//! The processes that this server waits for itself, and all others that end up as its children.
//!
//! The server adopts what its shells leave behind (`PR_SET_CHILD_SUBREAPER`): so nothing that has
//! made itself independent escapes the end of the server, and nothing stays a zombie.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::processes;

/// There is one process, so there is one set. A process is entered by the thread that has started
/// it before that thread looks for orphans again.
static KEPT: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Orphans are many when one is; they are waited for together.
const PAUSE: Duration = Duration::from_millis(20);

/// A child that somebody waits for, as long as this lives.
#[derive(Debug)]
pub(super) struct Kept(Option<i32>);

pub(super) fn keep(pid: Option<u32>) -> Kept {
    let pid = pid.map(u32::cast_signed);
    KEPT.lock().extend(pid);
    Kept(pid)
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            KEPT.lock().remove(&pid);
        }
    }
}

/// From now on orphans become children of this process.
pub(super) fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Waits for orphans for ever.
pub(super) async fn reap_orphans() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    while ended.recv().await.is_some() {
        reap();
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

pub(super) fn reap() {
    for pid in processes::ended_children() {
        if KEPT.lock().contains(&pid) {
            continue;
        }
        if let Some(pid) = Pid::from_raw(pid) {
            // Gone already: then it was not an orphan.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
