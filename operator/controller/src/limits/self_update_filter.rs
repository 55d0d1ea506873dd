//! Recognizes the watch event of the controller's own report of a rejection. It must not wake the
//! reconcile that backs off.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::per_sandbox::PerSandbox;
use shared::index::{Index, Key};

/// Resource versions that such reports created, by sandbox.
#[derive(Debug, Default)]
pub(crate) struct SelfUpdateFilter(Mutex<HashMap<Key, String>>);

impl SelfUpdateFilter {
    /// Records the current version of an object as a self-update. Must be called before the
    /// reconcile ends: keys that are added during a reconcile wait anyway.
    pub(crate) fn record(&self, key: &Key, index: &Index) {
        if let Some(entry) = index.get(key) {
            let version = entry.resource_version.clone();
            self.0.lock().insert(key.clone(), version);
        }
    }

    /// Returns whether the last change of an object was a self-update.
    pub(crate) fn is_own_update(&self, key: &Key, index: &Index) -> bool {
        let known = self.0.lock();
        let Some(version) = known.get(key) else {
            return false;
        };
        index
            .get(key)
            .is_some_and(|e| e.resource_version == *version)
    }

    /// Forgets an object whose last reconcile succeeded.
    pub(crate) fn remove(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl PerSandbox for SelfUpdateFilter {
    fn forget(&self, key: &Key) {
        self.remove(key);
    }
}
