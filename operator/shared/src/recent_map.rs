//! Bounded map that evicts its oldest key: the memory of short-lived facts, such as missing ids.
//!
//! A cache library is no substitute: admission policies (`TinyLFU`, S3-FIFO) may drop the newest
//! key, which for a used challenge or a deleted uid would be an error.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Map of at most `CAPACITY` keys, in the order of their last insertion.
#[derive(Debug)]
pub struct RecentMap<K, V, const CAPACITY: usize> {
    next: u64,
    values: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
}

impl<K, V, const CAPACITY: usize> Default for RecentMap<K, V, CAPACITY> {
    fn default() -> Self {
        Self {
            next: 0,
            values: HashMap::new(),
            order: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V, const CAPACITY: usize> RecentMap<K, V, CAPACITY> {
    /// Inserts a key as the newest, and evicts the oldest if there are too many.
    pub fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        self.order.insert(self.next, key.clone());
        self.values.insert(key, (self.next, value));
        self.next += 1;
        if self.values.len() > CAPACITY {
            self.evict_oldest_if(|_| true);
        }
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.values.get(key).map(|(_, value)| value)
    }

    pub fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some((position, _)) = self.values.remove(key) {
            self.order.remove(&position);
        }
    }

    /// Removes the oldest key if `condition` accepts its value.
    pub fn evict_oldest_if(&mut self, condition: impl Fn(&V) -> bool) {
        let Some(entry) = self.order.first_entry() else {
            return;
        };
        if self
            .values
            .get(entry.get())
            .is_some_and(|(_, v)| condition(v))
        {
            self.values.remove(&entry.remove());
        }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_key_is_evicted_when_full() {
        let mut map = RecentMap::<_, _, 3>::default();
        for n in [0, 1, 2, 0, 3] {
            map.insert(n, n);
        }
        assert_eq!(map.get(&1), None, "0 was inserted again");
        assert_eq!((map.get(&0), map.get(&3)), (Some(&0), Some(&3)));
        map.remove(&2);
        map.evict_oldest_if(|value| *value == 3);
        assert_eq!(map.len(), 2, "the oldest is 0");
        map.evict_oldest_if(|value| *value == 0);
        assert_eq!((map.values.len(), map.order.len()), (1, 1));
    }
}
