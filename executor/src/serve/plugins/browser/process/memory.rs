//! Memory limit of the browser: its largest process ends before the Pod is short of memory. Mostly
//! that is the renderer of one tab, and the others go on; if it is the browser's own, all ends and the
//! next action starts it again.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::serve::identity::Identity;
use crate::serve::process_tree::ProcessSet;

/// A page can fill a gibibyte per second; the sum is cheap to read.
const INTERVAL: Duration = Duration::from_millis(500);

/// Measures until it is dropped. `limit` is in bytes, for all processes of the browser.
pub(super) async fn watch(identity: Arc<Identity>, leader: u32, limit: u64) {
    let Some(leader) = Pid::from_raw(leader.cast_signed()) else {
        return;
    };
    loop {
        tokio::time::sleep(INTERVAL).await;
        let sizes = ProcessSet::Group(leader).private_memory();
        let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        if total <= limit {
            continue;
        }
        let largest = sizes.iter().max_by_key(|(_, bytes)| *bytes);
        let Some((pid, bytes)) = largest.copied() else {
            continue;
        };
        tracing::warn!(total, limit, bytes, "the browser exceeds its memory limit");
        let killing =
            identity.run_unqueued(move || rustix::process::kill_process(pid, Signal::KILL));
        if let Err(error) = killing.await {
            tracing::warn!(%error, "cannot end a process of the browser");
        }
    }
}
