//! Sandboxes that wait for a warm Pod, by pool. The oldest gets the next one.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::sandbox_memory::PerSandbox;
use shared::index::{Entry, Key};

/// Order of a sandbox among those that wait.
type Place = (Option<Timestamp>, Key);

#[derive(Debug, Default)]
pub(crate) struct WaitingSandboxes(Mutex<HashMap<Key, BTreeSet<Place>>>);

impl WaitingSandboxes {
    /// Makes a sandbox wait for a Pod of the pool.
    pub(crate) fn join(&self, pool: &Key, sandbox: &Entry) {
        let mut pools = self.0.lock();
        pools
            .entry(pool.clone())
            .or_default()
            .insert(place(sandbox));
    }

    /// Number of sandboxes that come before this one.
    pub(crate) fn ahead_of(&self, pool: &Key, sandbox: &Entry) -> usize {
        let pools = self.0.lock();
        let waiting = pools.get(pool);
        waiting.map_or(0, |waiting| waiting.range(..place(sandbox)).count())
    }

    /// The sandboxes that come first.
    pub(crate) fn first(&self, pool: &Key, count: usize) -> Vec<Key> {
        let pools = self.0.lock();
        let waiting = pools.get(pool).into_iter().flatten();
        waiting.take(count).map(|(_, key)| key.clone()).collect()
    }
}

impl PerSandbox for WaitingSandboxes {
    fn forget(&self, key: &Key) {
        self.0.lock().retain(|_, waiting| {
            waiting.retain(|(_, sandbox)| sandbox != key);
            !waiting.is_empty()
        });
    }
}

fn place(sandbox: &Entry) -> Place {
    (sandbox.created_at, sandbox.key.clone())
}
