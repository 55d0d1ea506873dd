//! Objects and their watch history. A change gets the next revision, is written to the journal and
//! then becomes visible, so that acknowledged writes survive a crash. Writers compare and swap.
//! They take turns at the journal, and readers never wait for the disk.

mod journal;
mod shard;

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

pub use journal::JournalError;
pub(crate) use shard::{Change, Event, Key};

use self::{journal::Journal, shard::Shard};
use super::object;

#[derive(Debug)]
pub(crate) struct Store {
    /// Held during a whole write. Locked before `state`.
    journal: Mutex<Option<Journal>>,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    revision: u64,
    shards: Vec<Shard>,
    /// Keys of the objects that name a uid as owner, for the garbage collector.
    dependents: HashMap<String, BTreeSet<ObjectKey>>,
    /// Existing objects by uid.
    uids: HashMap<String, ObjectKey>,
    is_closed: bool,
}

/// Storage key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) shard: usize,
    pub(crate) key: Key,
}

impl ObjectKey {
    /// Key of an object in `shard`.
    pub(crate) fn of(shard: usize, object: &Value) -> Self {
        let key = Key {
            namespace: object::namespace(object).to_owned(),
            name: object::name(object).to_owned(),
        };
        Self { shard, key }
    }

    /// Key of a cluster-scoped object.
    pub(crate) fn cluster(shard: usize, name: &str) -> Self {
        let key = Key {
            namespace: String::new(),
            name: name.to_owned(),
        };
        Self { shard, key }
    }
}

/// Outcome of a write.
#[derive(Debug)]
pub(crate) enum SwapResult {
    Done(Arc<Value>),
    /// Another writer created, changed or removed the object meanwhile.
    Lost,
}

/// Watch history after a revision.
#[derive(Debug)]
pub(crate) enum History {
    /// `caught_up` is the revision of the store if no events are left.
    Events {
        events: Vec<Arc<Event>>,
        caught_up: Option<u64>,
    },
    /// The events after the requested revision are compacted.
    Forgotten(u64),
}

impl Store {
    pub(crate) fn in_memory(shards: usize, history: usize) -> Self {
        let shards = (0..shards).map(|_| Shard::new(history)).collect();
        let state = StoreState {
            revision: 1,
            shards,
            dependents: HashMap::new(),
            uids: HashMap::new(),
            is_closed: false,
        };
        Self {
            journal: Mutex::new(None),
            state: Mutex::new(state),
        }
    }

    /// Loads the database. Rows that are not objects of a known resource are skipped and logged.
    pub(crate) fn open(
        path: &Path,
        names: &[String],
        history: usize,
    ) -> Result<Self, JournalError> {
        let store = Self::in_memory(names.len(), history);
        let (journal, loaded) = Journal::open(path, names)?;
        let mut state = store.state.lock();
        state.revision = loaded.revision.max(1);
        for row in loaded.rows {
            state.index(&row.object_key, &row.object);
            state.shards[row.object_key.shard]
                .objects
                .insert(row.object_key.key, Arc::new(row.object));
        }
        let revision = state.revision;
        state
            .shards
            .iter_mut()
            .for_each(|shard| shard.forget(revision));
        drop(state);
        *store.journal.lock() = Some(journal);
        Ok(store)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub(crate) fn get(&self, object_key: &ObjectKey) -> Option<Arc<Value>> {
        self.state.lock().shards[object_key.shard]
            .objects
            .get(&object_key.key)
            .cloned()
    }

    /// Returns the objects of a shard (and namespace) and the revision of the store.
    pub(crate) fn list(&self, shard: usize, namespace: Option<&str>) -> (Vec<Arc<Value>>, u64) {
        let state = self.state.lock();
        (state.shards[shard].list(namespace), state.revision)
    }

    /// Returns at most `limit` matching objects after `last`, and the revision of the store.
    pub(crate) fn list_after(
        &self,
        shard: usize,
        namespace: Option<&str>,
        last: Option<&Key>,
        limit: usize,
        matches: impl Fn(&Value) -> bool,
    ) -> (Vec<Arc<Value>>, u64) {
        let state = self.state.lock();
        let found = state.shards[shard]
            .after_key(namespace, last)
            .filter(|object| matches(object));
        (found.take(limit).cloned().collect(), state.revision)
    }

    /// Replaces `expected` by `next`; creates the object if nothing is expected.
    pub(crate) fn swap(
        &self,
        object_key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        next: Value,
    ) -> Result<SwapResult, JournalError> {
        let change = match expected {
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        self.write(object_key, expected, next, change)
    }

    /// Removes `expected`. Watchers see `last` as the final state.
    pub(crate) fn remove(
        &self,
        object_key: &ObjectKey,
        expected: &Arc<Value>,
        last: Value,
    ) -> Result<SwapResult, JournalError> {
        self.write(object_key, Some(expected), last, Change::Deleted)
    }

    fn write(
        &self,
        object_key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        mut object: Value,
        change: Change,
    ) -> Result<SwapResult, JournalError> {
        let mut journal = self.journal.lock();
        let revision = {
            let state = self.state.lock();
            if state.is_closed {
                return Err(JournalError::Closed);
            }
            if !state.matches_expected(object_key, expected) {
                return Ok(SwapResult::Lost);
            }
            state.revision + 1
        };
        object::set_meta(&mut object, "resourceVersion", revision.to_string());
        let is_kept = change != Change::Deleted;
        if let Some(journal) = &mut *journal {
            journal.write(object_key, is_kept.then_some(&object), revision)?;
        }
        let mut state = self.state.lock();
        if let Some(expected) = expected {
            state.unindex(object_key, expected);
        }
        if is_kept {
            state.index(object_key, &object);
        }
        state.revision = revision;
        let object = Arc::new(object);
        let shard = &mut state.shards[object_key.shard];
        shard.record(&object_key.key, change, object.clone(), revision);
        Ok(SwapResult::Done(object))
    }

    /// Returns the objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(ObjectKey, Arc<Value>)> {
        let state = self.state.lock();
        let object_keys = state.dependents.get(uid).into_iter().flatten();
        object_keys
            .filter_map(|object_key| {
                Some((
                    object_key.clone(),
                    state.shards[object_key.shard]
                        .objects
                        .get(&object_key.key)?
                        .clone(),
                ))
            })
            .collect()
    }

    /// Returns owners that objects name and that do not exist.
    pub(crate) fn orphan_owners(&self) -> Vec<String> {
        let state = self.state.lock();
        state
            .dependents
            .keys()
            .filter(|uid| !state.uids.contains_key(*uid))
            .cloned()
            .collect()
    }

    /// Returns the object with this uid.
    pub(crate) fn find(&self, uid: &str) -> Option<(ObjectKey, Arc<Value>)> {
        let state = self.state.lock();
        let key = state.uids.get(uid)?;
        let object = state.shards[key.shard].objects.get(&key.key)?;
        Some((key.clone(), object.clone()))
    }

    /// Returns at most `limit` events of a shard after `revision`.
    pub(crate) fn history(&self, shard: usize, revision: u64, limit: usize) -> History {
        let state = self.state.lock();
        state.shards[shard].after(revision, limit, state.revision)
    }

    /// Returns the oldest revision that a watch may start from, if `revision` is older.
    pub(crate) fn compacted_after(&self, shard: usize, revision: u64) -> Option<u64> {
        let compacted = self.state.lock().shards[shard].compacted;
        (revision < compacted).then_some(compacted)
    }

    /// Returns a receiver that changes whenever the shard changes.
    pub(crate) fn subscribe(&self, shard: usize) -> watch::Receiver<u64> {
        self.state.lock().shards[shard].signal.subscribe()
    }

    /// Closes the database. Later writes fail, and watches end.
    pub(crate) fn close(&self) {
        *self.journal.lock() = None;
        let mut state = self.state.lock();
        state.is_closed = true;
        state.shards.iter().for_each(Shard::wake_watchers);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Drops all history, as a compaction of etcd does.
    pub(crate) fn forget_history(&self) {
        let mut state = self.state.lock();
        let revision = state.revision;
        state
            .shards
            .iter_mut()
            .for_each(|shard| shard.forget(revision));
    }
}

impl StoreState {
    fn matches_expected(&self, object_key: &ObjectKey, expected: Option<&Arc<Value>>) -> bool {
        match (
            self.shards[object_key.shard].objects.get(&object_key.key),
            expected,
        ) {
            (None, None) => true,
            (Some(current), Some(expected)) => Arc::ptr_eq(current, expected),
            _ => false,
        }
    }

    fn index(&mut self, object_key: &ObjectKey, object: &Value) {
        for owner in object::owner_uids(object) {
            self.dependents
                .entry(owner.to_owned())
                .or_default()
                .insert(object_key.clone());
        }
        if !object::uid(object).is_empty() {
            let uid = object::uid(object).to_owned();
            self.uids.insert(uid, object_key.clone());
        }
    }

    fn unindex(&mut self, object_key: &ObjectKey, object: &Value) {
        for owner in object::owner_uids(object) {
            if let Some(object_keys) = self.dependents.get_mut(owner) {
                object_keys.remove(object_key);
                if object_keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        self.uids.remove(object::uid(object));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readers_do_not_wait_for_a_commit() {
        let store = Store::in_memory(1, 8);
        let object = json!({"metadata": {"name": "a", "uid": "u"}});
        let key = ObjectKey::of(0, &object);
        store.swap(&key, None, object).unwrap();
        let _commit = store.journal.lock();
        assert!(store.get(&key).is_some());
        assert_eq!(store.list(0, None).1, store.revision());
        assert!(store.find("u").is_some());
    }
}
