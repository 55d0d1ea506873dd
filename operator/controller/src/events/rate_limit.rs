//! Rate limits of Events: token buckets, one for each sandbox with recent Events.

use std::collections::HashMap;
use std::time::Duration;

use shared::index::Key;
use shared::token_bucket::TokenBucket;

/// Burst of Events of one sandbox.
const OBJECT_BURST: u32 = 10;
/// Interval of Events of one sandbox after the burst.
const OBJECT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of sandboxes with a bucket. Full buckets are dropped first.
const MAX_TRACKED_SANDBOXES: usize = 4096;

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
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

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
    fn token_buckets_are_bounded() {
        let mut buckets = SandboxTokenBuckets::default();
        for n in 0..20_000 {
            buckets.take(&key(&n.to_string()));
        }
        assert!(buckets.0.len() <= MAX_TRACKED_SANDBOXES);
    }
}
