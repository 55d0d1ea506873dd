//! Events on Sandboxes, as `kubectl describe` shows them: one per real transition, written by the
//! side. A pass never waits for one. There is a bound on how many wait, on how fast they are
//! written, and on how many one sandbox gets; what is beyond is dropped and counted.

mod limits;
mod record;
#[cfg(test)]
mod tests;
mod transition;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::Clock;
use crate::index::{Entry, Key};
use crate::metrics::PassMetrics;
use limits::{Bucket, Buckets};
use record::Recorder;
use transition::Announcement;
use waiting::Waiting;

/// Events that wait to be written.
const WAITING: usize = 1024;
/// Events per second that are written, over all sandboxes.
const PER_SECOND: f64 = 20.0;
/// Events that are written at once after a quiet while.
const BURST: f64 = 50.0;
/// Attempts at one event.
const ATTEMPTS: u32 = 3;
/// Pause after the first failed attempt; the next one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// Takes announcements from passes, and writes them.
pub(super) struct Announcer {
    clock: Clock,
    waiting: Mutex<Waiting>,
    buckets: Mutex<Buckets>,
    /// Something waits.
    pushed: Notify,
    /// Something was dealt with.
    settled: Notify,
    metrics: PassMetrics,
}

/// An event about an object.
#[derive(Debug, Clone)]
struct Notice {
    key: Key,
    uid: String,
    at: Timestamp,
    announcement: Announcement,
}

impl Announcer {
    pub(super) fn new(clock: Clock, metrics: PassMetrics) -> Self {
        Self {
            clock,
            waiting: Mutex::new(Waiting::new(WAITING)),
            buckets: Mutex::default(),
            pushed: Notify::new(),
            settled: Notify::new(),
            metrics,
        }
    }

    /// Announces what changed from one status to the next. Does not wait.
    pub(super) fn announce(&self, before: &Entry, after: &Entry) {
        for announcement in transition::announcements(&before.status, &after.status) {
            if !self.buckets.lock().take(&after.uid, Instant::now()) {
                self.metrics.event("dropped_object_rate");
                continue;
            }
            let notice = Notice {
                key: after.key.clone(),
                uid: after.uid.clone(),
                at: self.clock.now(),
                announcement,
            };
            if self.waiting.lock().push(notice).is_some() {
                self.metrics.event("dropped_queue_full");
            }
            self.pushed.notify_one();
        }
    }

    /// Writes announcements for ever.
    pub(super) async fn run(self: Arc<Self>, client: Client, instance: String) {
        let mut recorder = Recorder::new(client, self.clock, instance);
        let mut pace = Bucket::new(BURST, PER_SECOND, Instant::now());
        loop {
            let next = self.waiting.lock().next();
            let Some(notice) = next else {
                self.pushed.notified().await;
                continue;
            };
            sleep_until(pace.next(Instant::now())).await;
            let written = write(&mut recorder, &notice).await;
            self.metrics
                .event(if written { "written" } else { "dropped_failed" });
            self.waiting.lock().done();
            self.settled.notify_waiters();
        }
    }

    /// Waits until everything announced so far is written or dropped.
    pub(super) async fn flushed(&self) {
        loop {
            let settled = self.settled.notified();
            if self.waiting.lock().is_empty() {
                return;
            }
            settled.await;
        }
    }
}

/// Writes an event, or gives up after a few attempts.
async fn write(recorder: &mut Recorder, notice: &Notice) -> bool {
    let mut pause = PAUSE;
    for attempt in 1..=ATTEMPTS {
        let Err(error) = recorder.write(notice).await else {
            return true;
        };
        tracing::debug!(key = %notice.key, %error, attempt, "an event was not written");
        let futile = matches!(error.code(), Some(400..=422));
        if futile || attempt == ATTEMPTS {
            break;
        }
        sleep(pause).await;
        pause *= 2;
    }
    false
}
