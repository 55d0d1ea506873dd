//! Sandboxes that wait for a warm Pod, by pool. The oldest gets the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::sandbox_memory::PerSandbox;
use shared::index::{Entry, Key};
use shared::kubernetes::work_queue::WorkQueue;

/// Order of a sandbox among those that wait.
type Place = (Option<Timestamp>, Key);

#[derive(Debug)]
pub(crate) struct WaitingSandboxes {
    by_pool: Mutex<HashMap<Key, BTreeSet<Place>>>,
    pool_queue: Arc<WorkQueue<Key>>,
}

impl WaitingSandboxes {
    pub(crate) fn new(pool_queue: Arc<WorkQueue<Key>>) -> Self {
        Self {
            by_pool: Mutex::default(),
            pool_queue,
        }
    }

    /// Makes a sandbox wait for a Pod of this pool, and of no other.
    pub(crate) fn join(&self, pool: &Key, sandbox: &Entry) {
        let place = place(sandbox);
        self.leave(&sandbox.key, |other, at| other != pool || *at != place);
        let mut pools = self.by_pool.lock();
        pools.entry(pool.clone()).or_default().insert(place);
    }

    /// Takes a sandbox out of the places for which `leaves` holds. The next one there is woken.
    fn leave(&self, sandbox: &Key, leaves: impl Fn(&Key, &Place) -> bool) {
        self.by_pool.lock().retain(|pool, waiting| {
            let before = waiting.len();
            waiting.retain(|place| place.1 != *sandbox || !leaves(pool, place));
            if waiting.len() < before && !waiting.is_empty() {
                self.pool_queue.add(pool.clone());
            }
            !waiting.is_empty()
        });
    }

    /// Number of sandboxes that come before this one.
    pub(crate) fn ahead_of(&self, pool: &Key, sandbox: &Entry) -> usize {
        let pools = self.by_pool.lock();
        let waiting = pools.get(pool);
        waiting.map_or(0, |waiting| waiting.range(..place(sandbox)).count())
    }

    /// The sandboxes that come first.
    pub(crate) fn first(&self, pool: &Key, count: usize) -> Vec<Key> {
        let pools = self.by_pool.lock();
        let waiting = pools.get(pool).into_iter().flatten();
        waiting.take(count).map(|(_, key)| key.clone()).collect()
    }
}

impl PerSandbox for WaitingSandboxes {
    fn forget(&self, key: &Key) {
        self.leave(key, |_, _| true);
    }
}

fn place(sandbox: &Entry) -> Place {
    (sandbox.created_at, sandbox.key.clone())
}
