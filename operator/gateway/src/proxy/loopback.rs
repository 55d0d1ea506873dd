//! Sandboxes by loopback address: the inverse of a hash, kept up to date with the index. Only
//! machines without wildcard DNS need it, so the table is built on the first lookup.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use shared::index::{Entry, Index, Key};
use shared::urls::loopback_address;

/// Loopback addresses of all sandboxes.
#[derive(Debug)]
pub(super) struct LoopbackAddresses {
    index: Arc<Index>,
    table: Mutex<Option<AddressTable>>,
}

#[derive(Debug)]
struct AddressTable {
    changes: Receiver<Key>,
    sandboxes: HashMap<Key, (Ipv4Addr, String)>,
    by_address: HashMap<Ipv4Addr, Vec<Key>>,
}

impl LoopbackAddresses {
    pub(super) fn new(index: Arc<Index>) -> Self {
        Self {
            index,
            table: Mutex::new(None),
        }
    }

    /// Runtime id of the sandbox with this address; `None` if two have the same.
    pub(super) fn sandbox(&self, address: Ipv4Addr) -> Option<String> {
        let mut table = self.table.lock();
        let table = table.get_or_insert_with(|| AddressTable::read(&self.index));
        table.catch_up(&self.index);
        match table.by_address.get(&address)?.as_slice() {
            [key] => Some(table.sandboxes.get(key)?.1.clone()),
            _ => None,
        }
    }
}

impl AddressTable {
    fn read(index: &Index) -> Self {
        let mut table = Self {
            // Subscribed before the list, so that no change is missed.
            changes: index.changes(),
            sandboxes: HashMap::new(),
            by_address: HashMap::new(),
        };
        for entry in index.list(|_| true) {
            table.insert(&entry);
        }
        table
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
        let table = (address, entry.runtime_id.clone());
        if self.sandboxes.insert(entry.key.clone(), table).is_none() {
            self.by_address
                .entry(address)
                .or_default()
                .push(entry.key.clone());
        }
    }
}
