//! Bounds of Events: the queue of those to be written, and a token bucket for each sandbox with
//! recent Events.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::PendingEvent;
use shared::index::Key;
use shared::token_bucket::TokenBucket;

/// Maximum number of pending Events.
pub(super) const MAX_PENDING_EVENTS: usize = 1024;
/// Burst of Events of one sandbox.
const OBJECT_BURST: u32 = 10;
/// Interval of Events of one sandbox after the burst.
const OBJECT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of sandboxes with a bucket. Full buckets are dropped first.
const MAX_TRACKED_SANDBOXES: usize = 4096;

/// Pending Events, oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingQueue {
    events: VecDeque<PendingEvent>,
    /// True while an Event that was taken is being written.
    is_writing: bool,
}

impl PendingQueue {
    /// Adds an Event. A full queue drops the oldest normal Event, or else the oldest. Returns
    /// whether one was dropped.
    pub(super) fn push(&mut self, event: PendingEvent) -> bool {
        self.events.push_back(event);
        let is_full = self.events.len() > MAX_PENDING_EVENTS;
        if is_full {
            let normal = self.events.iter().position(|e| !e.content.warning);
            self.events.remove(normal.unwrap_or(0));
        }
        is_full
    }

    /// Takes the oldest warning, or else the oldest Event. The caller calls [`PendingQueue::done`]
    /// after it is written.
    pub(super) fn next(&mut self) -> Option<PendingEvent> {
        let warning = self.events.iter().position(|e| e.content.warning);
        let event = self.events.remove(warning.unwrap_or(0))?;
        self.is_writing = true;
        Some(event)
    }

    pub(super) fn done(&mut self) {
        self.is_writing = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.is_writing
    }
}

/// Buckets of sandboxes, by sandbox.
#[derive(Debug, Default)]
pub(super) struct SandboxTokenBuckets(HashMap<Key, TokenBucket>);

impl SandboxTokenBuckets {
    /// Takes a token of this sandbox. Returns whether one was available.
    pub(super) fn take(&mut self, key: &Key) -> bool {
        if self.0.len() >= MAX_TRACKED_SANDBOXES && !self.0.contains_key(key) {
            self.evict();
        }
        let fresh = || TokenBucket::new(OBJECT_BURST, OBJECT_INTERVAL);
        self.0.entry(key.clone()).or_insert_with(fresh).take()
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Drops the full buckets, or else all; then some sandboxes get a few more Events.
    fn evict(&mut self) {
        self.0.retain(|_, bucket| !bucket.is_full());
        if self.0.len() >= MAX_TRACKED_SANDBOXES {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::events::Regarding;
    use crate::events::transition::EventContent;
    use crate::tests::key;

    #[tokio::test(start_paused = true)]
    async fn sandbox_gets_ten_events_then_two_per_minute() {
        let mut buckets = SandboxTokenBuckets::default();
        let taken = (0..100).filter(|_| buckets.take(&key("a"))).count();
        assert_eq!(taken, 10);
        assert!(buckets.take(&key("b")));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((0..10).filter(|_| buckets.take(&key("a"))).count(), 2);
        buckets.remove(&key("a"));
        assert_eq!((0..100).filter(|_| buckets.take(&key("a"))).count(), 10);
    }

    #[test]
    fn warnings_come_before_normal_events() {
        let mut queue = PendingQueue::default();
        for (name, warning) in [("a", false), ("b", true), ("c", false), ("d", true)] {
            queue.push(PendingEvent {
                regarding: Regarding::Sandbox,
                key: key(name),
                uid: String::new(),
                at: Timestamp::UNIX_EPOCH,
                content: EventContent {
                    warning,
                    reason: String::new(),
                    action: "",
                    note: None,
                },
            });
        }
        let taken = std::iter::from_fn(|| queue.next()).map(|event| event.key.name);
        assert_eq!(taken.collect::<Vec<_>>(), ["b", "d", "a", "c"]);
    }

    #[test]
    fn token_buckets_are_bounded() {
        let mut buckets = SandboxTokenBuckets::default();
        for n in 0..20_000 {
            buckets.take(&key(&n.to_string()));
        }
        assert!(buckets.0.len() <= MAX_TRACKED_SANDBOXES);
    }
}
