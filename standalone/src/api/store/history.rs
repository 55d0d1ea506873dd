//! Bounded watch history of one resource. A watcher that is too late gets 410 and lists again, as
//! with a compacted etcd.

use std::{collections::VecDeque, sync::Arc};

use serde_json::Value;
use tokio::sync::watch;

/// One change. `previous` tells whether the object entered or left a selector.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
    pub(crate) is_deleted: bool,
}

#[derive(Debug)]
pub(super) struct History {
    log: VecDeque<Arc<Event>>,
    capacity: usize,
    /// Revision of the newest event that was dropped from the log.
    dropped: u64,
    /// Oldest revision that a new watch may start from.
    pub(super) compacted: u64,
    pub(super) changes: watch::Sender<()>,
}

impl History {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            log: VecDeque::new(),
            capacity,
            dropped: 0,
            compacted: 0,
            changes: watch::Sender::new(()),
        }
    }

    pub(super) fn record(&mut self, event: Event) {
        self.log.push_back(Arc::new(event));
        if self.log.len() > self.capacity
            && let Some(oldest) = self.log.pop_front()
        {
            self.dropped = oldest.revision;
            self.compacted = self.compacted.max(self.dropped);
        }
        self.changes.send_replace(());
    }

    /// See [`super::Store::history`]. `now` is the revision of the store.
    pub(super) fn after(
        &self,
        revision: u64,
        limit: usize,
        now: u64,
    ) -> Result<(Vec<Arc<Event>>, u64), u64> {
        if revision < self.dropped {
            return Err(self.dropped);
        }
        let start = self.log.partition_point(|event| event.revision <= revision);
        let events: Vec<_> = self.log.iter().skip(start).take(limit).cloned().collect();
        let is_complete = start + events.len() == self.log.len();
        let last = events.last().filter(|_| !is_complete);
        let position = last.map_or(now, |event| event.revision);
        Ok((events, position))
    }

    /// Empties the log. Open watches that are up to date continue; none can resume.
    pub(super) fn forget(&mut self, revision: u64) {
        self.dropped = self.log.back().map_or(self.dropped, |event| event.revision);
        self.compacted = revision;
        self.log.clear();
    }
}
