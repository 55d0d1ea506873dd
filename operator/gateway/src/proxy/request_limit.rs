//! Limits the concurrent requests of each sandbox, held ones included, so that one sandbox cannot
//! take the capacity of all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use shared::index::Key;

/// Requests of all sandboxes; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestLimiter(Arc<Mutex<HashMap<Arc<Key>, usize>>>);

/// Permit of one request, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestPermit {
    limiter: RequestLimiter,
    key: Arc<Key>,
}

impl RequestLimiter {
    /// Returns a permit, unless the sandbox has `limit` of them.
    pub(super) fn acquire(&self, key: &Key, limit: usize) -> Option<RequestPermit> {
        let mut counts = self.0.lock();
        let known = counts.get_key_value(key);
        let (key, count) = known.map_or_else(
            || (Arc::new(key.clone()), 0),
            |(key, count)| (key.clone(), *count),
        );
        if count >= limit {
            return None;
        }
        counts.insert(key.clone(), count + 1);
        Some(RequestPermit {
            limiter: self.clone(),
            key,
        })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.0.lock();
        match counts.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_permits_are_counted_per_sandbox_and_released() {
        let key = |name: &str| Key {
            namespace: "sandboxes".into(),
            name: name.into(),
        };
        let limiter = RequestLimiter::default();
        let mut taken: Vec<_> = (0..2).map(|_| limiter.acquire(&key("a"), 2)).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(limiter.acquire(&key("a"), 2).is_none());
        assert!(limiter.acquire(&key("b"), 2).is_some());
        taken.pop();
        assert!(limiter.acquire(&key("a"), 2).is_some());
        taken.clear();
        assert!(
            limiter.0.lock().is_empty(),
            "entries are removed with the last permit"
        );
    }
}
