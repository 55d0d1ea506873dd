//! Objects of one resource and its bounded history. A watcher that is too late gets 410 and lists
//! again, as with a compacted etcd.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::History;

/// Namespace (empty for cluster-scoped resources) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change. `previous` tells whether the object entered or left a selector.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) at: Instant,
    pub(crate) change: Change,
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
    pub(crate) namespace: String,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) objects: BTreeMap<Key, Arc<Value>>,
    pub(super) signal: watch::Sender<u64>,
    log: VecDeque<Arc<Event>>,
    /// Revision of the newest event that was dropped from the log.
    dropped: u64,
    /// Oldest revision that a new watch may start from.
    pub(super) compacted: u64,
    capacity: usize,
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        let signal = watch::Sender::new(0);
        Self {
            objects: BTreeMap::new(),
            signal,
            log: VecDeque::new(),
            dropped: 0,
            compacted: 0,
            capacity,
        }
    }

    pub(super) fn list(&self, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(namespace) = namespace else {
            return self.objects.values().cloned().collect();
        };
        let start = Key {
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        let inside = self
            .objects
            .range(start..)
            .take_while(|(key, _)| key.namespace == namespace);
        inside.map(|(_, object)| object.clone()).collect()
    }

    /// Iterates over the objects after a key, of one namespace or all.
    pub(super) fn after_key<'a>(
        &'a self,
        namespace: Option<&'a str>,
        last: Option<&Key>,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = Key {
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        let start = match last {
            Some(last) if *last >= first => Bound::Excluded(last.clone()),
            _ => Bound::Included(first),
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|own| key.namespace == own))
            .map(|(_, object)| object)
    }

    pub(super) fn record(&mut self, key: &Key, change: Change, object: Arc<Value>, revision: u64) {
        let previous = match change {
            Change::Deleted => self.objects.remove(key),
            Change::Added | Change::Modified => self.objects.insert(key.clone(), object.clone()),
        };
        let namespace = key.namespace.clone();
        self.log.push_back(Arc::new(Event {
            revision,
            at: Instant::now(),
            change,
            object,
            previous,
            namespace,
        }));
        while self.log.len() > self.capacity {
            self.dropped = self
                .log
                .pop_front()
                .map_or(self.dropped, |event| event.revision);
            self.compacted = self.compacted.max(self.dropped);
        }
        self.signal.send_replace(revision);
    }

    pub(super) fn after(&self, revision: u64, limit: usize, now: u64) -> History {
        if revision < self.dropped {
            return History::Forgotten(self.dropped);
        }
        let start = self.log.partition_point(|event| event.revision <= revision);
        let events: Vec<_> = self.log.iter().skip(start).take(limit).cloned().collect();
        History::Events {
            caught_up: (start + events.len() == self.log.len()).then_some(now),
            events,
        }
    }

    pub(super) fn wake_watchers(&self) {
        self.signal.send_modify(|_| ());
    }

    /// Empties the log. Open watches that are up to date continue; none can resume.
    pub(super) fn forget(&mut self, revision: u64) {
        self.dropped = self.log.back().map_or(self.dropped, |event| event.revision);
        self.compacted = revision;
        self.log.clear();
    }
}
