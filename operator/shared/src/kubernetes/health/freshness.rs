//! Freshness of the index that a watch feeds. Every proxied request reads it, so it is one atomic
//! number.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Time until which an index counts as current. Before the first response of a watch it does.
#[derive(Debug)]
pub struct Freshness {
    created_at: Instant,
    /// Milliseconds after `created_at` at which the index becomes stale.
    stale_after: AtomicU64,
}

impl Default for Freshness {
    fn default() -> Self {
        Self {
            created_at: Instant::now(),
            stale_after: u64::MAX.into(),
        }
    }
}

impl Freshness {
    /// Returns whether the watch fails or is silent at present, so that its index may be stale.
    pub fn is_stale(&self) -> bool {
        self.milliseconds_at(Instant::now()) >= self.stale_after.load(Ordering::Relaxed)
    }

    pub(super) fn set_fresh_until(&self, last: Instant) {
        let stale_after = self.milliseconds_at(last) + 1;
        self.stale_after.store(stale_after, Ordering::Relaxed);
    }

    pub(super) fn set_stale(&self) {
        self.stale_after.store(0, Ordering::Relaxed);
    }

    fn milliseconds_at(&self, time: Instant) -> u64 {
        let passed = time.saturating_duration_since(self.created_at);
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX - 1)
    }
}
