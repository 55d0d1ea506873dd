//! Which sandbox a loopback address stands for: the inverse of a hash, kept up to date with the
//! index. Only one machine without wildcard names needs it, so nothing is done before it is asked.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::index::{Entry, Index, Key};
use crate::urls::loopback_address;

/// Addresses of all sandboxes.
#[derive(Debug)]
pub(super) struct Addresses {
    index: Arc<Index>,
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    changes: Receiver<Key>,
    sandboxes: HashMap<Key, (Ipv4Addr, String)>,
    by_address: HashMap<Ipv4Addr, Vec<Key>>,
}

impl Addresses {
    pub(super) fn new(index: Arc<Index>) -> Self {
        Self {
            index,
            known: Mutex::new(None),
        }
    }

    /// The runtime id of the only sandbox with this address. Two with one address have none.
    pub(super) fn sandbox(&self, address: Ipv4Addr) -> Option<String> {
        let mut known = self.known.lock();
        let known = known.get_or_insert_with(|| Known::read(&self.index));
        known.catch_up(&self.index);
        match known.by_address.get(&address)?.as_slice() {
            [key] => Some(known.sandboxes.get(key)?.1.clone()),
            _ => None,
        }
    }
}

impl Known {
    fn read(index: &Index) -> Self {
        let mut known = Self {
            // Before the list, so that no change falls between the two.
            changes: index.changes(),
            sandboxes: HashMap::new(),
            by_address: HashMap::new(),
        };
        for entry in index.list(|_| true) {
            known.insert(&entry);
        }
        known
    }

    fn catch_up(&mut self, index: &Index) {
        loop {
            match self.changes.try_recv() {
                Ok(key) => self.update(&key, index),
                Err(TryRecvError::Lagged(_)) => *self = Self::read(index),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn update(&mut self, key: &Key, index: &Index) {
        if let Some((address, _)) = self.sandboxes.remove(key)
            && let Some(keys) = self.by_address.get_mut(&address)
        {
            keys.retain(|held| held != key);
            if keys.is_empty() {
                self.by_address.remove(&address);
            }
        }
        if let Some(entry) = index.get(key) {
            self.insert(&entry);
        }
    }

    fn insert(&mut self, entry: &Entry) {
        let address = loopback_address(&entry.runtime_id);
        let known = (address, entry.runtime_id.clone());
        if self.sandboxes.insert(entry.key.clone(), known).is_none() {
            self.by_address
                .entry(address)
                .or_default()
                .push(entry.key.clone());
        }
    }
}
