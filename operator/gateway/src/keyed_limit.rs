//! Concurrency limits by key, such as a client address or a sandbox, so that one cannot take the
//! capacity of all others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Permits in use by key; cheap to clone. There are never more entries than permits.
#[derive(Debug, Clone)]
pub(crate) struct KeyedLimiter<K>(Arc<Mutex<HashMap<Arc<K>, usize>>>);

#[derive(Debug)]
pub(crate) struct KeyedPermit<K: Eq + Hash> {
    limiter: KeyedLimiter<K>,
    key: Arc<K>,
}

impl<K> Default for KeyedLimiter<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedLimiter<K> {
    pub(crate) fn acquire(&self, key: &K, limit: usize) -> Option<KeyedPermit<K>> {
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
        Some(KeyedPermit {
            limiter: self.clone(),
            key,
        })
    }
}

impl<K: Clone + Eq + Hash> KeyedPermit<K> {
    /// Becomes a permit of another key; false if that has `limit` of them.
    pub(crate) fn change_key(&mut self, key: &K, limit: usize) -> bool {
        let permit = self.limiter.acquire(key, limit);
        permit.map(|permit| *self = permit).is_some()
    }
}

impl<K: Eq + Hash> Drop for KeyedPermit<K> {
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
    fn permits_are_counted_per_key_and_released() {
        let limiter = KeyedLimiter::default();
        let mut taken: Vec<_> = (0..2).map(|_| limiter.acquire(&"a", 2)).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(limiter.acquire(&"a", 2).is_none());
        assert!(limiter.acquire(&"b", 2).is_some());
        taken.pop();
        assert!(limiter.acquire(&"a", 2).is_some());
        taken.clear();
        assert!(
            limiter.0.lock().is_empty(),
            "entries are removed with the last permit"
        );
    }
}
