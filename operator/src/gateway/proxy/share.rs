//! How many requests each sandbox has at the same time, those included that still wait for it: no
//! sandbox may take what all others need, and least of all one that is not there.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::index::Key;

/// Requests of all sandboxes; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<Arc<Key>, usize>>>);

/// The place of one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    key: Arc<Key>,
}

impl Shares {
    /// A place for a request, unless its sandbox has `limit` of them.
    pub(super) fn take(&self, key: &Key, limit: usize) -> Option<Share> {
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
        Some(Share {
            shares: self.clone(),
            key,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.0.lock();
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
    fn each_has_its_own_and_gives_it_back() {
        let key = |name: &str| Key {
            namespace: "sandboxes".into(),
            name: name.into(),
        };
        let shares = Shares::default();
        let mut taken: Vec<_> = (0..2).map(|_| shares.take(&key("a"), 2)).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(shares.take(&key("a"), 2).is_none());
        assert!(shares.take(&key("b"), 2).is_some());
        taken.pop();
        assert!(shares.take(&key("a"), 2).is_some());
        taken.clear();
        assert!(shares.0.lock().is_empty(), "nothing is kept of the past");
    }
}
