//! Wakes the tasks that wait for a change of one Sandbox, and no others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Key;

/// Waiting tasks by the key they wait for. There are never more keys than tasks.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<Key, Arc<Notify>>>);

/// Registration of one task, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: &'a Key,
    pub(super) changed: Arc<Notify>,
}

impl Waiters {
    pub(super) fn register<'a>(&'a self, key: &'a Key) -> Waiter<'a> {
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
