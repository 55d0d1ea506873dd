//! Limits live lookups of sandboxes that seem not to be ready. Any client can send any number of
//! requests to them; the API server must not see all of these.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use shared::index::Key;

/// Minimum time between two lookups of one sandbox.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum of sandboxes that are looked up within that time.
const MAX_TRACKED_SANDBOXES: usize = 64;
/// Maximum of concurrent lookups: half of all, so that the API keeps the others.
const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// Sandboxes with a lookup: `None` while it runs, then the time of its end.
#[derive(Debug, Default)]
pub(super) struct LiveLookupLimiter(Mutex<HashMap<Key, Option<Instant>>>);

#[derive(Debug)]
pub(super) struct LookupPermit<'a> {
    limiter: &'a LiveLookupLimiter,
    key: &'a Key,
}

impl LiveLookupLimiter {
    /// Returns a permit, unless a lookup of the sandbox is running or has just ended.
    pub(super) fn begin<'a>(&'a self, key: &'a Key) -> Option<LookupPermit<'a>> {
        let mut lookups = self.0.lock();
        let is_recent = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() < LOOKUP_INTERVAL);
        if lookups.get(key).is_some_and(is_recent) {
            return None;
        }
        if lookups.len() >= MAX_TRACKED_SANDBOXES {
            lookups.retain(|_, at| is_recent(at));
        }
        let running = lookups.values().filter(|at| at.is_none()).count();
        if lookups.len() >= MAX_TRACKED_SANDBOXES || running >= MAX_CONCURRENT_LOOKUPS {
            return None;
        }
        lookups.insert(key.clone(), None);
        Some(LookupPermit { limiter: self, key })
    }
}

impl Drop for LookupPermit<'_> {
    fn drop(&mut self) {
        let mut lookups = self.limiter.0.lock();
        if let Some(at) = lookups.get_mut(self.key) {
            *at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key {
            namespace: "sandboxes".into(),
            name: n.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn allows_one_lookup_per_sandbox_and_interval() {
        let limiter = LiveLookupLimiter::default();
        let key = key(0);
        let first = limiter.begin(&key);
        tokio::time::advance(2 * LOOKUP_INTERVAL).await;
        assert!(first.is_some() && limiter.begin(&key).is_none());
        drop(first);
        assert!(limiter.begin(&key).is_none());
        tokio::time::advance(LOOKUP_INTERVAL).await;
        assert!(limiter.begin(&key).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn limits_concurrent_lookups() {
        let limiter = LiveLookupLimiter::default();
        let keys: Vec<_> = (0..10 * MAX_TRACKED_SANDBOXES).map(key).collect();
        let at_once: Vec<_> = keys.iter().filter_map(|key| limiter.begin(key)).collect();
        assert_eq!(at_once.len(), MAX_CONCURRENT_LOOKUPS);
        drop(at_once);
        tokio::time::advance(LOOKUP_INTERVAL).await;
        let permits = || {
            let permits = keys.iter().filter(|key| limiter.begin(key).is_some());
            permits.count()
        };
        assert_eq!(permits(), MAX_TRACKED_SANDBOXES);
        assert_eq!(permits(), 0);
        tokio::time::advance(LOOKUP_INTERVAL).await;
        assert_eq!(permits(), MAX_TRACKED_SANDBOXES);
    }
}
