//! Waiting for a Sandbox to become what a caller needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::{Entry, Index, Key};

impl Index {
    /// Waits until `done` accepts the entry, at most for `limit`. Returns the entry as it was last
    /// seen, accepted or not; `None` if there is none (any more).
    pub async fn wait(
        &self,
        key: &Key,
        limit: Duration,
        done: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let deadline = Instant::now() + limit;
        let mut changes = self.changes();
        loop {
            let entry = self.get(key)?;
            if done(&entry) {
                return Some(entry);
            }
            // A change of this key, or having missed changes, is a reason to look again.
            loop {
                match timeout_at(deadline, changes.recv()).await {
                    Ok(Ok(other)) if other != *key => {}
                    Ok(Ok(_) | Err(RecvError::Lagged(_))) => break,
                    Ok(Err(RecvError::Closed)) | Err(_) => return self.get(key),
                }
            }
        }
    }

    /// Waits until a complete list has been seen, at most for `limit`.
    pub async fn wait_synced(&self, limit: Duration) -> bool {
        let mut synced = self.synced.subscribe();
        tokio::time::timeout(limit, synced.wait_for(|done| *done))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }
}
