//! Events of Sandboxes, pools and snapshots, one per transition. A separate task writes them, so that reconciles do not
//! wait. The queue, the write rate and the rate per sandbox are bounded; Events beyond that are dropped
//! and counted.

mod pool_transition;
mod queue;
mod recorder;
mod snapshot_transition;
#[cfg(test)]
mod tests;
mod transition;

use std::sync::Arc;
use std::time::Duration;

use crds::SandboxSnapshot;
use crds::pool::{SandboxPoolStatus, WhenExhausted};
use jiff::Timestamp;
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::sandbox_memory::PerSandbox;
use queue::{PendingQueue, SandboxTokenBuckets};
use recorder::Recorder;
use shared::clock::Clock;
use shared::index::{Entry, Key};
use shared::metrics::ControllerMetrics;
use shared::token_bucket::TokenBucket;
use transition::EventContent;

/// Intervals of writes after a burst, over all sandboxes: normal Events, of which each start has one,
/// leave the API server to the starts; warnings come sooner.
const NORMAL_INTERVAL: Duration = Duration::from_millis(200);
const WARNING_INTERVAL: Duration = Duration::from_millis(50);
/// Burst of each write rate.
const BURST: u32 = 25;
/// Maximum attempts to write one Event.
const MAX_ATTEMPTS: u32 = 3;
/// Delay after the first failed attempt; the next one is twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

/// Queues the Events of reconciles, and writes them.
pub(super) struct EventPublisher {
    clock: Clock,
    pending: Mutex<PendingQueue>,
    buckets: Mutex<SandboxTokenBuckets>,
    pool_buckets: Mutex<SandboxTokenBuckets>,
    snapshot_buckets: Mutex<SandboxTokenBuckets>,
    /// Signals a new pending Event.
    pushed: Notify,
    /// Signals that an Event was written or dropped.
    settled: Notify,
    metrics: ControllerMetrics,
}

/// Kind of the object that an Event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Regarding {
    Sandbox,
    Pool,
    Snapshot,
}

/// Event that is to be written.
#[derive(Debug, Clone)]
struct PendingEvent {
    regarding: Regarding,
    key: Key,
    uid: String,
    at: Timestamp,
    content: EventContent,
}

impl EventPublisher {
    pub(super) fn new(clock: Clock, metrics: ControllerMetrics) -> Self {
        Self {
            clock,
            pending: Mutex::default(),
            buckets: Mutex::default(),
            pool_buckets: Mutex::default(),
            snapshot_buckets: Mutex::default(),
            pushed: Notify::new(),
            settled: Notify::new(),
            metrics,
        }
    }

    /// Queues the Events of a status change. Does not wait.
    pub(super) fn publish_changes(&self, before: &Entry, after: &Entry) {
        for content in transition::events_for_change(&before.status, &after.status) {
            self.publish(after, content);
        }
    }

    /// Queues an Event about an error that the status cannot report.
    pub(super) fn publish_error(&self, entry: &Entry, reason: &str, note: String) {
        self.publish(entry, transition::warning(reason, "Reconcile", note));
    }

    /// Queues the Events of a change of a pool's status.
    pub(super) fn publish_pool_changes(
        &self,
        (key, uid): (&Key, &str),
        before: &SandboxPoolStatus,
        after: &SandboxPoolStatus,
        when_exhausted: WhenExhausted,
    ) {
        let events = pool_transition::events_for_pool_change(before, after, when_exhausted);
        for content in events {
            self.push(Regarding::Pool, key, uid, content);
        }
    }

    /// Queues the Event of a change of a snapshot's status.
    pub(super) fn publish_snapshot_change(
        &self,
        before: &SandboxSnapshot,
        after: &SandboxSnapshot,
    ) {
        let status = after.status.as_ref();
        let event = status.and_then(|status| {
            snapshot_transition::event_for_snapshot_change(before.phase(), status)
        });
        let Some(event) = event else { return };
        let key = Key {
            namespace: after.namespace().unwrap_or_default(),
            name: after.name_any(),
        };
        let uid = after.uid().unwrap_or_default();
        self.push(Regarding::Snapshot, &key, &uid, event);
    }

    fn publish(&self, entry: &Entry, content: EventContent) {
        self.push(Regarding::Sandbox, &entry.key, &entry.uid, content);
    }

    fn push(&self, regarding: Regarding, key: &Key, uid: &str, content: EventContent) {
        let buckets = match regarding {
            Regarding::Sandbox => &self.buckets,
            Regarding::Pool => &self.pool_buckets,
            Regarding::Snapshot => &self.snapshot_buckets,
        };
        if !buckets.lock().take(key) {
            self.metrics.event("dropped_object_rate");
            return;
        }
        let event = PendingEvent {
            regarding,
            key: key.clone(),
            uid: uid.to_owned(),
            at: self.clock.now(),
            content,
        };
        if self.pending.lock().push(event) {
            self.metrics.event("dropped_queue_full");
        }
        self.pushed.notify_one();
    }

    /// Writes pending Events until it is cancelled.
    pub(super) async fn run(self: Arc<Self>, client: Client, instance: String) {
        let mut recorder = Recorder::new(client, self.clock, instance);
        let mut normal = TokenBucket::new(BURST, NORMAL_INTERVAL);
        let mut warnings = TokenBucket::new(BURST, WARNING_INTERVAL);
        loop {
            let next = self.pending.lock().next();
            let Some(event) = next else {
                self.pushed.notified().await;
                continue;
            };
            let rate = if event.content.warning {
                &mut warnings
            } else {
                &mut normal
            };
            sleep(rate.reserve(Duration::MAX).unwrap_or_default()).await;
            let written = write(&mut recorder, &event).await;
            self.metrics
                .event(if written { "written" } else { "dropped_failed" });
            self.pending.lock().done();
            self.settled.notify_waiters();
        }
    }

    /// Waits until all pending Events are written or dropped.
    pub(super) async fn wait_flushed(&self) {
        loop {
            let settled = self.settled.notified();
            if self.pending.lock().is_empty() {
                return;
            }
            settled.await;
        }
    }
}

impl PerSandbox for EventPublisher {
    fn forget(&self, key: &Key) {
        self.buckets.lock().remove(key);
    }
}

/// Writes an Event in at most [`MAX_ATTEMPTS`] attempts. Returns whether it was written.
async fn write(recorder: &mut Recorder, event: &PendingEvent) -> bool {
    let mut backoff = INITIAL_BACKOFF;
    for attempt in 1..=MAX_ATTEMPTS {
        let Err(error) = recorder.write(event).await else {
            return true;
        };
        tracing::debug!(key = %event.key, %error, attempt, "cannot write an Event");
        let is_terminal = matches!(error.code(), Some(400..=422));
        if is_terminal || attempt == MAX_ATTEMPTS {
            break;
        }
        sleep(backoff).await;
        backoff *= 2;
    }
    false
}
