//! What was last reported of objects that are refused: such a report is no reason to look again. It
//! comes back as a change of the object, and would wake the pass that was just told to wait.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::index::{Index, Key};

/// Versions that reports of refusals left behind, one per object that is being refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Key, String>>);

impl Refusals {
    /// Notes that the present version of an object is our own report. Called before the pass ends:
    /// what is asked for while it is under way waits anyway.
    pub(crate) fn note(&self, key: &Key, index: &Index) {
        if let Some(entry) = index.get(key) {
            let version = entry.resource_version.clone();
            self.0.lock().insert(key.clone(), version);
        }
    }

    /// Whether the last change of an object was such a report.
    pub(crate) fn is_report(&self, key: &Key, index: &Index) -> bool {
        let known = self.0.lock();
        let Some(version) = known.get(key) else {
            return false;
        };
        index
            .get(key)
            .is_some_and(|e| e.resource_version == *version)
    }

    /// Forgets an object that is refused no longer.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}
