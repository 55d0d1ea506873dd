//! Waits for a Sandbox to reach a state.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Entry, Index, Key};

impl Index {
    /// Waits until `done` accepts the entry, at most for `limit`. Returns the last known entry,
    /// accepted or not; `None` if it does not exist.
    pub async fn wait(
        &self,
        key: &Key,
        limit: Duration,
        done: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let mut found = None;
        let settled = |index: &Self| {
            found = index.get(key);
            found.as_ref().is_none_or(|entry| done(entry))
        };
        self.wait_until(key, limit, settled).await;
        found
    }

    /// Waits until the watch has delivered the last version that this process wrote or read of an
    /// object, at most for `limit`. Watches of other processes deliver it at about the same time.
    pub async fn wait_delivered(&self, key: &Key, limit: Duration) {
        let delivered = |index: &Self| !index.tables.read().undelivered.contains(key);
        self.wait_until(key, limit, delivered).await;
    }

    /// Checks `settled` now and after every change of this key, until it is true.
    async fn wait_until(&self, key: &Key, limit: Duration, mut settled: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        let waiter = self.waiters.register(key);
        loop {
            let mut changed = std::pin::pin!(waiter.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if settled(self) {
                return;
            }
            if timeout_at(deadline, changed).await.is_err() {
                settled(self);
                return;
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
