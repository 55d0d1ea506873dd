//! Wakes sandboxes that the operator paused because nobody used them: the first request for one
//! writes the wish to be awake, all others just wait for it to come true.
//!
//! Anybody can send requests to ids, so the writes of a replica are few at a time and paced.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::gateway::sandboxes::Sandboxes;
use crate::index::{Entry, Key};
use crate::metrics::GatewayMetrics;

/// Least time between two writes of this replica.
const PACE: Duration = Duration::from_millis(10);
/// Pause before a write that failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Sandboxes that are being woken.
#[derive(Debug)]
pub(super) struct Wakes {
    metrics: Arc<GatewayMetrics>,
    under_way: Mutex<HashSet<Key>>,
    /// The moment that the next write has to wait for.
    next: Mutex<Option<Instant>>,
}

/// One sandbox that is being woken.
struct Wake {
    wakes: Arc<Wakes>,
    sandboxes: Sandboxes,
    key: Key,
}

impl Wakes {
    pub(super) fn new(metrics: Arc<GatewayMetrics>) -> Self {
        Self {
            metrics,
            under_way: Mutex::default(),
            next: Mutex::default(),
        }
    }

    /// Sees to it that a sandbox is woken, and does not wait for it. Gives up after `limit`.
    pub(super) fn wake(self: &Arc<Self>, sandboxes: &Sandboxes, entry: &Entry, limit: Duration) {
        if !self.under_way.lock().insert(entry.key.clone()) {
            return;
        }
        let wake = Wake {
            wakes: self.clone(),
            sandboxes: sandboxes.clone(),
            key: entry.key.clone(),
        };
        let deadline = Instant::now() + limit;
        tokio::spawn(async move {
            // Whoever waits for the sandbox says what came of it.
            let _ = timeout_at(deadline, wake.run()).await;
        });
    }

    fn turn(&self) -> Instant {
        let (mut next, now) = (self.next.lock(), Instant::now());
        let turn = next.map_or(now, |next| next.max(now));
        *next = Some(turn + PACE);
        turn
    }
}

impl Wake {
    async fn run(&self) {
        sleep_until(self.wakes.turn()).await;
        while let Some(entry) = self.sandboxes.index.get(&self.key) {
            match self.sandboxes.wake(&entry).await {
                Ok(_) => return self.wakes.metrics.woke("ok"),
                Err(error) => tracing::debug!(key = %self.key, %error, "cannot wake"),
            }
            self.wakes.metrics.woke("error");
            sleep(PAUSE).await;
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.wakes.under_way.lock().remove(&self.key);
    }
}
