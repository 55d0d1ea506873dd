//! The objects and their history. One lock covers both: a change gets the next revision, goes to the journal, and only
//! then becomes visible and is announced, so whoever was answered will find the object again after a crash.
//! Writers compare and swap: they prepare an object outside the lock and lose to whoever was faster.

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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    shards: Vec<Shard>,
    /// Who names a uid as its owner; the garbage collector asks.
    dependents: HashMap<String, BTreeSet<Place>>,
    /// Uids that exist.
    uids: BTreeSet<String>,
    journal: Option<Journal>,
    closed: bool,
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) shard: usize,
    pub(crate) key: Key,
}

/// How a write ended.
#[derive(Debug)]
pub(crate) enum Swap {
    Done(Arc<Value>),
    /// Somebody else changed, made or removed the object meanwhile.
    Lost,
}

/// What a watcher finds after its last event.
#[derive(Debug)]
pub(crate) enum History {
    /// `caught_up`: the revision of the whole store, when these are all events there are.
    Events {
        events: Vec<Arc<Event>>,
        caught_up: Option<u64>,
    },
    /// The events after the asked revision are forgotten.
    Forgotten(u64),
}

impl Store {
    pub(crate) fn in_memory(shards: usize, history: usize) -> Self {
        let shards = (0..shards).map(|_| Shard::new(history)).collect();
        let state = State {
            revision: 1,
            shards,
            dependents: HashMap::new(),
            uids: BTreeSet::new(),
            journal: None,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Loads what the database holds. Rows that are not objects of a known resource are left alone and reported.
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
            state.index(&row.place, &row.object);
            state.shards[row.place.shard]
                .objects
                .insert(row.place.key, Arc::new(row.object));
        }
        let revision = state.revision;
        state
            .shards
            .iter_mut()
            .for_each(|shard| shard.forget(revision));
        state.journal = Some(journal);
        drop(state);
        Ok(store)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub(crate) fn get(&self, place: &Place) -> Option<Arc<Value>> {
        self.state.lock().shards[place.shard]
            .objects
            .get(&place.key)
            .cloned()
    }

    /// The objects of a shard, of one namespace or of all, and the revision they are from.
    pub(crate) fn list(&self, shard: usize, namespace: Option<&str>) -> (Vec<Arc<Value>>, u64) {
        let state = self.state.lock();
        (state.shards[shard].list(namespace), state.revision)
    }

    /// At most `limit` of the objects after `last` that `matches` accepts, and the revision they are from.
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

    /// Puts `next` in the place of `expected`, or makes it when nothing is expected there.
    pub(crate) fn swap(
        &self,
        place: &Place,
        expected: Option<&Arc<Value>>,
        next: Value,
    ) -> Result<Swap, JournalError> {
        let mut state = self.state.lock();
        if !state.holds(place, expected) {
            return Ok(Swap::Lost);
        }
        let change = if expected.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        let object = state.stamp(next);
        state.write_journal(place, Some(&object))?;
        if let Some(expected) = expected {
            state.unindex(place, expected);
        }
        state.index(place, &object);
        Ok(Swap::Done(state.record(place, change, object)))
    }

    /// Removes `expected`, with `last` as the state that watchers are told.
    pub(crate) fn remove(
        &self,
        place: &Place,
        expected: &Arc<Value>,
        last: Value,
    ) -> Result<Swap, JournalError> {
        let mut state = self.state.lock();
        if !state.holds(place, Some(expected)) {
            return Ok(Swap::Lost);
        }
        let object = state.stamp(last);
        state.write_journal(place, None)?;
        state.unindex(place, expected);
        Ok(Swap::Done(state.record(place, Change::Deleted, object)))
    }

    /// Objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Place, Arc<Value>)> {
        let state = self.state.lock();
        let places = state.dependents.get(uid).into_iter().flatten();
        places
            .filter_map(|place| {
                Some((
                    place.clone(),
                    state.shards[place.shard].objects.get(&place.key)?.clone(),
                ))
            })
            .collect()
    }

    /// Owners that objects name and that do not exist.
    pub(crate) fn orphan_owners(&self) -> Vec<String> {
        let state = self.state.lock();
        state
            .dependents
            .keys()
            .filter(|uid| !state.uids.contains(*uid))
            .cloned()
            .collect()
    }

    pub(crate) fn exists(&self, uid: &str) -> bool {
        self.state.lock().uids.contains(uid)
    }

    /// Events of a shard after `revision`, at most `limit`.
    pub(crate) fn history(&self, shard: usize, revision: u64, limit: usize) -> History {
        let state = self.state.lock();
        state.shards[shard].after(revision, limit, state.revision)
    }

    /// The oldest revision a watch of the shard may start from, if `revision` is older.
    pub(crate) fn compacted_after(&self, shard: usize, revision: u64) -> Option<u64> {
        let compacted = self.state.lock().shards[shard].compacted;
        (revision < compacted).then_some(compacted)
    }

    /// Wakes a watcher whenever the shard changed.
    pub(crate) fn subscribe(&self, shard: usize) -> watch::Receiver<u64> {
        self.state.lock().shards[shard].signal.subscribe()
    }

    /// Gives the file back. Writes fail from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.journal = None;
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

impl State {
    fn holds(&self, place: &Place, expected: Option<&Arc<Value>>) -> bool {
        match (self.shards[place.shard].objects.get(&place.key), expected) {
            (None, None) => true,
            (Some(current), Some(expected)) => Arc::ptr_eq(current, expected),
            _ => false,
        }
    }

    fn stamp(&mut self, mut object: Value) -> Value {
        object::set_meta(
            &mut object,
            "resourceVersion",
            (self.revision + 1).to_string(),
        );
        object
    }

    fn write_journal(&mut self, place: &Place, object: Option<&Value>) -> Result<(), JournalError> {
        match &mut self.journal {
            _ if self.closed => Err(JournalError::Closed),
            Some(journal) => journal.write(place, object, self.revision + 1),
            None => Ok(()),
        }
    }

    fn record(&mut self, place: &Place, change: Change, object: Value) -> Arc<Value> {
        self.revision += 1;
        let object = Arc::new(object);
        self.shards[place.shard].record(&place.key, change, object.clone(), self.revision);
        object
    }

    fn index(&mut self, place: &Place, object: &Value) {
        for owner in object::owner_uids(object) {
            self.dependents
                .entry(owner.to_owned())
                .or_default()
                .insert(place.clone());
        }
        if !object::uid(object).is_empty() {
            self.uids.insert(object::uid(object).to_owned());
        }
    }

    fn unindex(&mut self, place: &Place, object: &Value) {
        for owner in object::owner_uids(object) {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        self.uids.remove(object::uid(object));
    }
}
