//! What is known of all Sandboxes, as domain values: fed by a watch and by our own writes, read
//! by every request of the gateway and every pass of the controller.
//!
//! Readers never touch the API server, so they keep answering while it is away.

mod census;
mod entry;
pub(crate) mod gone;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crds::Sandbox;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};

use crate::keys::Keys;
use census::Census;
use gone::Gone;

pub use entry::{Entry, Key};

/// How many changes a slow reader may lag behind before it has to look at everything again.
const CHANGES: usize = 4096;

/// Index of Sandboxes.
#[derive(Debug)]
pub struct Index {
    keys: Arc<Keys>,
    tables: RwLock<Tables>,
    changes: broadcast::Sender<Key>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Tables {
    entries: HashMap<Key, Arc<Entry>>,
    by_runtime_id: HashMap<String, Key>,
    /// Tenant and session to epochs; the last one is the newest runtime of the session.
    by_session: HashMap<(String, String), BTreeMap<u32, Key>>,
    gone: Gone,
    census: Census,
}

impl Index {
    /// An empty index, not yet [`Index::synced`].
    pub fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            tables: RwLock::default(),
            changes: broadcast::Sender::new(CHANGES),
            synced: watch::Sender::new(false),
        }
    }

    /// Takes in an object as read or written. Older versions than the known one are ignored, so
    /// that a late watch event cannot undo our own write; the same version is no news, so that a
    /// write of ours is not announced again by its own watch event; and objects that are gone stay
    /// gone, so that the late answer to a write cannot bring one back. Returns the entry that now holds, or the last
    /// one of what is gone; `None` if the object has no uid and so was never stored.
    pub fn apply(&self, sandbox: &Sandbox) -> Option<Arc<Entry>> {
        let entry = Arc::new(Entry::read(sandbox, &self.keys)?);
        let mut tables = self.tables.write();
        if let Some(known) = tables.entries.get(&entry.key)
            && (known.is_newer_than(&entry) || known.is_same_as(&entry))
        {
            return Some(known.clone());
        }
        if tables.gone.contains(&entry.uid) {
            return Some(entry);
        }
        tables.remove(&entry.key);
        tables.insert(entry.clone());
        drop(tables);
        self.announce(&entry.key);
        Some(entry)
    }

    /// Forgets an object that is gone for good. A newer object of the same name stays.
    pub fn remove(&self, key: &Key, uid: &str) {
        self.tables.write().gone.insert(uid);
        self.forget(key, uid);
    }

    fn forget(&self, key: &Key, uid: &str) {
        let mut tables = self.tables.write();
        if tables.entries.get(key).is_some_and(|e| e.uid == uid) {
            tables.remove(key);
            drop(tables);
            self.announce(key);
        }
    }

    /// Ends a relist: forgets everything that it did not mention, and marks the index synced. All
    /// that it did mention is announced, changed or not: an occasion to look at everything anew.
    pub fn retain(&self, seen: &HashSet<Key>) {
        let gone: Vec<_> = {
            let tables = self.tables.read();
            let gone = tables.entries.values().filter(|e| !seen.contains(&e.key));
            gone.map(|e| (e.key.clone(), e.uid.clone())).collect()
        };
        for (key, uid) in gone {
            // Not for good: the list may be older than a write of ours.
            self.forget(&key, &uid);
        }
        for key in seen {
            self.announce(key);
        }
        self.synced.send_replace(true);
    }

    /// Whether a complete list has been seen.
    pub fn synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.tables.read().entries.get(key).cloned()
    }

    pub fn by_runtime_id(&self, id: &str) -> Option<Arc<Entry>> {
        let tables = self.tables.read();
        tables.entries.get(tables.by_runtime_id.get(id)?).cloned()
    }

    /// The newest runtime of a session.
    pub fn by_session(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let tables = self.tables.read();
        let epochs = tables
            .by_session
            .get(&(tenant.to_owned(), session.to_owned()))?;
        tables.entries.get(epochs.values().next_back()?).cloned()
    }

    /// All entries that `wanted` accepts, in order of their keys.
    pub fn list(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let tables = self.tables.read();
        let mut found: Vec<_> = tables
            .entries
            .values()
            .filter(|e| wanted(e))
            .cloned()
            .collect();
        drop(tables);
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// How many Sandboxes are in each phase, by the phase's name.
    pub fn census(&self) -> Vec<(&'static str, usize)> {
        self.tables.read().census.counts().collect()
    }

    /// Keys of objects as they change or go. A receiver that lags has to look at everything.
    pub fn changes(&self) -> broadcast::Receiver<Key> {
        self.changes.subscribe()
    }

    fn announce(&self, key: &Key) {
        // No receiver is no error: nobody waits then.
        let _ = self.changes.send(key.clone());
    }
}

impl Tables {
    fn insert(&mut self, entry: Arc<Entry>) {
        let key = entry.key.clone();
        self.census.add(entry.status.phase);
        self.by_runtime_id
            .insert(entry.runtime_id.clone(), key.clone());
        if let Some(session) = entry.session() {
            self.by_session
                .entry((session.tenant.clone(), session.id.clone()))
                .or_default()
                .insert(session.epoch, key.clone());
        }
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.census.remove(entry.status.phase);
        if self.by_runtime_id.get(&entry.runtime_id) == Some(key) {
            self.by_runtime_id.remove(&entry.runtime_id);
        }
        let Some(session) = entry.session() else {
            return;
        };
        let of_session = (session.tenant.clone(), session.id.clone());
        if let Some(epochs) = self.by_session.get_mut(&of_session) {
            epochs.retain(|_, held| held != key);
            if epochs.is_empty() {
                self.by_session.remove(&of_session);
            }
        }
    }
}
