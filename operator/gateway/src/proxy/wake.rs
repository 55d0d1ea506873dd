//! Wakes sandboxes that were paused as idle: the first request writes the wake annotation, all
//! others wait for readiness.
//!
//! Any client can send requests to any id, so the writes of a replica are few and rate-limited.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::sandboxes::Sandboxes;
use shared::index::{Entry, Key};
use shared::metrics::GatewayMetrics;
use shared::token_bucket::TokenBucket;

/// Minimum time between two writes of this replica.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct WakeScheduler {
    metrics: Arc<GatewayMetrics>,
    in_progress: Mutex<HashSet<Key>>,
    writes: Mutex<TokenBucket>,
}

struct WakeTask {
    wakes: Arc<WakeScheduler>,
    sandboxes: Sandboxes,
    key: Key,
}

impl WakeScheduler {
    pub(super) fn new(metrics: Arc<GatewayMetrics>) -> Self {
        Self {
            metrics,
            in_progress: Mutex::default(),
            writes: Mutex::new(TokenBucket::new(1, MIN_WRITE_INTERVAL)),
        }
    }

    /// Wakes a sandbox in the background. Gives up after `limit`.
    pub(super) fn wake(self: &Arc<Self>, sandboxes: &Sandboxes, entry: &Entry, limit: Duration) {
        if !self.in_progress.lock().insert(entry.key.clone()) {
            return;
        }
        let wake = WakeTask {
            wakes: self.clone(),
            sandboxes: sandboxes.clone(),
            key: entry.key.clone(),
        };
        let deadline = Instant::now() + limit;
        tokio::spawn(async move {
            // The held requests report the outcome.
            let _ = timeout_at(deadline, wake.run()).await;
        });
    }
}

impl WakeTask {
    async fn run(&self) {
        let wait = self.wakes.writes.lock().reserve(Duration::MAX);
        sleep(wait.unwrap_or_default()).await;
        while let Some(entry) = self.sandboxes.index.get(&self.key) {
            match self.sandboxes.wake(&entry).await {
                Ok(_) => return self.wakes.metrics.record_wake("ok"),
                Err(error) => tracing::debug!(key = %self.key, %error, "cannot wake"),
            }
            self.wakes.metrics.record_wake("error");
            sleep(RETRY_INTERVAL).await;
        }
    }
}

impl Drop for WakeTask {
    fn drop(&mut self) {
        self.wakes.in_progress.lock().remove(&self.key);
    }
}
