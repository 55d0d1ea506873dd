//! Waits for a Sandbox to reach a state. A change wakes the tasks that wait for it, and no others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
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

/// Waiting tasks by the key they wait for. There are never more keys than tasks.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<Key, Arc<Notify>>>);

/// Registration of one task, until it is dropped.
struct Waiter<'a> {
    waiters: &'a Waiters,
    key: &'a Key,
    changed: Arc<Notify>,
}

impl Waiters {
    fn register<'a>(&'a self, key: &'a Key) -> Waiter<'a> {
        let changed = self.0.lock().entry(key.clone()).or_default().clone();
        Waiter {
            waiters: self,
            key,
            changed,
        }
    }

    pub(super) fn wake(&self, key: &Key) {
        if let Some(changed) = self.0.lock().get(key) {
            changed.notify_waiters();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.waiters.0.lock();
        // This registration and the map hold one reference each.
        if Arc::strong_count(&self.changed) == 2 {
            waiters.remove(self.key);
        }
    }
}
