//! Objects and their watch history. A change gets the next revision, is written to the journal and
//! then becomes visible, so that acknowledged writes survive a crash. Writers compare and swap.
//! They take turns at the journal, and readers never wait for the disk.

mod history;
mod journal;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use history::Event;
pub use journal::JournalError;

use self::{history::History, journal::Journal};
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
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    /// Watch history by shard.
    history: Vec<History>,
    /// Keys of the objects that name a uid as owner, for the garbage collector.
    dependents: HashMap<String, BTreeSet<ObjectKey>>,
    uids: HashMap<String, ObjectKey>,
}

/// Storage key of an object. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// Index of the resource.
    pub(crate) shard: usize,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(shard: usize, namespace: &str, name: &str) -> Self {
        Self {
            shard,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn of(shard: usize, object: &Value) -> Self {
        Self::new(shard, object::namespace(object), object::name(object))
    }
}

impl Store {
    pub(crate) fn in_memory(shards: usize, history: usize) -> Self {
        let state = StoreState {
            revision: 1,
            objects: BTreeMap::new(),
            history: (0..shards).map(|_| History::new(history)).collect(),
            dependents: HashMap::new(),
            uids: HashMap::new(),
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
        let (journal, rows, revision) = Journal::open(path, names)?;
        let mut state = store.state.lock();
        state.revision = revision;
        for (key, object) in rows {
            state.set(&key, Some(Arc::new(object)));
        }
        drop(state);
        store.forget_history();
        *store.journal.lock() = Some(journal);
        Ok(store)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.state.lock().objects.get(key).cloned()
    }

    pub(crate) fn list(&self, shard: usize, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let all = |_: &Value| true;
        self.list_after(shard, namespace, None, usize::MAX, all).0
    }

    /// Returns at most `limit` matching objects after `last`, and the revision of the store.
    pub(crate) fn list_after(
        &self,
        shard: usize,
        namespace: Option<&str>,
        last: Option<&ObjectKey>,
        limit: usize,
        matches: impl Fn(&Value) -> bool,
    ) -> (Vec<Arc<Value>>, u64) {
        let first = ObjectKey::new(shard, namespace.unwrap_or_default(), "");
        let start = match last {
            Some(last) if *last >= first => Bound::Excluded(last.clone()),
            _ => Bound::Included(first),
        };
        let is_listed = |key: &ObjectKey| {
            key.shard == shard && namespace.is_none_or(|namespace| key.namespace == namespace)
        };
        let state = self.state.lock();
        let found = state.objects.range((start, Bound::Unbounded));
        let found = found.take_while(|(key, _)| is_listed(key));
        let found = found.filter(|(_, object)| matches(object)).take(limit);
        let objects = found.map(|(_, object)| object.clone()).collect();
        (objects, state.revision)
    }

    /// Replaces `expected` by `next`; creates the object if nothing is expected. `None` if another
    /// writer has created, changed or removed the object meanwhile.
    pub(crate) fn swap(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        next: Value,
    ) -> Result<Option<Arc<Value>>, JournalError> {
        self.write(key, expected, next, false)
    }

    /// Removes `expected`, unless another writer was faster. Returns the final state.
    pub(crate) fn remove(
        &self,
        key: &ObjectKey,
        expected: &Arc<Value>,
    ) -> Result<Option<Arc<Value>>, JournalError> {
        self.write(key, Some(expected), Value::clone(expected), true)
    }

    fn write(
        &self,
        key: &ObjectKey,
        expected: Option<&Arc<Value>>,
        mut object: Value,
        is_deleted: bool,
    ) -> Result<Option<Arc<Value>>, JournalError> {
        let mut journal = self.journal.lock();
        let revision = {
            let state = self.state.lock();
            if state.objects.get(key).map(Arc::as_ptr) != expected.map(Arc::as_ptr) {
                return Ok(None);
            }
            state.revision + 1
        };
        object::set_meta(&mut object, "resourceVersion", revision.to_string());
        if let Some(journal) = &mut *journal {
            journal.write(key, (!is_deleted).then_some(&object), revision)?;
        }
        let object = Arc::new(object);
        let mut state = self.state.lock();
        state.revision = revision;
        let previous = state.set(key, (!is_deleted).then(|| object.clone()));
        state.history[key.shard].record(Event {
            revision,
            object: object.clone(),
            previous,
            is_deleted,
        });
        Ok(Some(object))
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<(ObjectKey, Arc<Value>)> {
        let state = self.state.lock();
        let keys = state.dependents.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.entry(key)).collect()
    }

    /// Returns owners that objects name and that do not exist.
    pub(crate) fn orphan_owners(&self) -> Vec<String> {
        let state = self.state.lock();
        let owners = state.dependents.keys();
        let missing = owners.filter(|uid| !state.uids.contains_key(*uid));
        missing.cloned().collect()
    }

    pub(crate) fn find(&self, uid: &str) -> Option<(ObjectKey, Arc<Value>)> {
        let state = self.state.lock();
        state.entry(state.uids.get(uid)?)
    }

    /// Returns at most `limit` events of a shard after `revision`, and the revision up to which
    /// they are complete. The error is the oldest known revision, if events are compacted.
    pub(crate) fn history(
        &self,
        shard: usize,
        revision: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), u64> {
        let state = self.state.lock();
        state.history[shard].after(revision, limit, state.revision)
    }

    /// Returns the oldest revision that a watch may start from, if `revision` is older.
    pub(crate) fn compacted_after(&self, shard: usize, revision: u64) -> Option<u64> {
        let compacted = self.state.lock().history[shard].compacted;
        (revision < compacted).then_some(compacted)
    }

    pub(crate) fn subscribe(&self, shard: usize) -> watch::Receiver<()> {
        self.state.lock().history[shard].changes.subscribe()
    }

    /// Drops all history, as a compaction of etcd does.
    pub(crate) fn forget_history(&self) {
        let mut state = self.state.lock();
        let revision = state.revision;
        let history = state.history.iter_mut();
        history.for_each(|history| history.forget(revision));
    }
}

impl StoreState {
    fn entry(&self, key: &ObjectKey) -> Option<(ObjectKey, Arc<Value>)> {
        Some((key.clone(), self.objects.get(key)?.clone()))
    }

    /// Stores or removes an object and returns the previous one.
    fn set(&mut self, key: &ObjectKey, object: Option<Arc<Value>>) -> Option<Arc<Value>> {
        if let Some(previous) = self.objects.get(key).cloned() {
            self.unindex(key, &previous);
        }
        let Some(object) = object else {
            return self.objects.remove(key);
        };
        for owner in object::owner_uids(&object) {
            let dependents = self.dependents.entry(owner.to_owned()).or_default();
            dependents.insert(key.clone());
        }
        if let Some(uid) = object::meta(&object, "uid") {
            self.uids.insert(uid.to_owned(), key.clone());
        }
        self.objects.insert(key.clone(), object)
    }

    fn unindex(&mut self, key: &ObjectKey, object: &Value) {
        for owner in object::owner_uids(object) {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        self.uids.remove(object::uid(object));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::{Request, StatusCode};
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::api::{Clock, EmbeddedApi};

    #[tokio::test]
    async fn requests_are_answered_while_a_commit_waits_for_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("objects.db");
        let api = EmbeddedApi::open(&path, &[], Clock::wall()).unwrap();
        let path = "/api/v1/namespaces/default/configmaps";
        let body = json!({"metadata": {"name": "c"}}).to_string();
        let create = api.clone().oneshot(Request::post(path).body(body).unwrap());
        let mut create = Box::pin(create);

        let commit = api.state.store.journal.lock();
        assert!(create.as_mut().now_or_never().is_none());
        let list = Request::get(path).body(String::new()).unwrap();
        let list = api.clone().oneshot(list).now_or_never();
        assert_eq!(list.unwrap().unwrap().status(), StatusCode::OK);
        drop(commit);
        assert_eq!(create.await.unwrap().status(), StatusCode::CREATED);
    }

    #[test]
    fn history_is_bounded() {
        let store = Store::in_memory(1, 3);
        for name in ["a", "b", "c", "d"] {
            let object = json!({"metadata": {"name": name}});
            let key = ObjectKey::of(0, &object);
            store.swap(&key, None, object).unwrap();
        }
        assert_eq!(store.history(0, 1, 10).unwrap_err(), 2);
        assert_eq!(store.compacted_after(0, 1), Some(2));
        let (events, position) = store.history(0, 2, 2).unwrap();
        assert_eq!((events.len(), position), (2, 4), "the batch is not the end");
        let (events, position) = store.history(0, 4, 2).unwrap();
        assert_eq!((events.len(), position), (1, 5));
    }
}
