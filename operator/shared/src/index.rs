//! In-memory index of all Sandboxes, fed by a watch and by own writes. Every request of the gateway
//! and every reconcile of the controller reads it, so that they do not depend on the API server.

pub mod deleted_uids;
mod entry;
mod history;
mod removal;
mod status_counts;
#[cfg(test)]
mod tests;
mod updates;
mod wait;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase};
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::keys::Keys;
use crate::recent_map::RecentMap;
use crate::urls::loopback_address;
use deleted_uids::DeletedUids;
use history::History;
use status_counts::StatusCounts;
use wait::Waiters;

pub use entry::{Entry, Key, payload_bytes};
pub use history::{Cursor, Deletion, InvalidCursor, Update};
pub use updates::TenantPage;

/// Changes that a slow reader may lag behind before it has to read everything again.
const CHANGE_BUFFER: usize = 4096;
/// Maximum number of remembered changes of the watch; those of the last second fit.
const MAX_RECENT_CHANGES: usize = 4096;

/// Index of Sandboxes, shared by all tasks of the process.
#[derive(Debug)]
pub struct Index {
    keys: Arc<Keys>,
    tables: RwLock<Tables>,
    changes: broadcast::Sender<Key>,
    updates: broadcast::Sender<Update>,
    /// Version up to which the watch has delivered all changes.
    delivered: watch::Sender<u64>,
    waiters: Waiters,
    synced: watch::Sender<bool>,
    /// Entries lack the fields that only a controller needs.
    slim: bool,
}

#[derive(Debug, Default)]
struct Tables {
    entries: HashMap<Key, Arc<Entry>>,
    by_runtime_id: HashMap<String, Key>,
    /// Every Sandbox by the address of its loopback URL, which several may share.
    by_loopback_address: BTreeSet<(Ipv4Addr, Key)>,
    /// Tenant and session to epochs; the last one is the newest sandbox of the session.
    by_session: HashMap<(String, String), BTreeMap<u32, Key>>,
    /// Tenant to the Sandboxes of its sessions, in order of their keys.
    by_tenant: HashMap<String, TenantSandboxes>,
    /// Objects whose last version came from a response, and not yet from the watch.
    undelivered: HashSet<Key>,
    /// Times of the last changes that the watch delivered.
    delivered_at: RecentMap<Key, Instant, MAX_RECENT_CHANGES>,
    deleted_uids: DeletedUids,
    history: History,
    status_counts: StatusCounts,
}

/// Sandboxes of one tenant's sessions.
#[derive(Debug, Default)]
struct TenantSandboxes {
    keys: BTreeSet<Key>,
    /// Sum of [`Entry::payload_bytes`].
    payload_bytes: usize,
}

/// Totals of one tenant's sandboxes in all states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantTotals {
    pub sandboxes: usize,
    /// Sum of [`Entry::payload_bytes`].
    pub payload_bytes: usize,
}

impl Index {
    /// An empty index, not yet [`Index::synced`].
    pub fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            tables: RwLock::default(),
            changes: broadcast::Sender::new(CHANGE_BUFFER),
            updates: broadcast::Sender::new(CHANGE_BUFFER),
            delivered: watch::Sender::new(0),
            waiters: Waiters::default(),
            synced: watch::Sender::new(false),
            slim: false,
        }
    }

    /// An empty index for a process without a controller: environments, which may be large, and
    /// Pod templates are not kept.
    pub fn without_environments(keys: Arc<Keys>) -> Self {
        Self {
            slim: true,
            ..Self::new(keys)
        }
    }

    /// Stores an object from a response of the API server, and returns the resulting entry.
    ///
    /// Older versions are ignored, so that a late watch event cannot undo an own write. The same
    /// version is not announced again. Deleted objects stay deleted, so that a late response to a
    /// write cannot resurrect one. `None` if the object has no uid and so was never stored.
    pub fn apply(&self, sandbox: &Sandbox) -> Option<Arc<Entry>> {
        let (entry, changed) = self.store(sandbox, false)?;
        if changed {
            self.announce(&entry.key);
        }
        Some(entry)
    }

    /// Stores an object that the watch delivered.
    pub fn deliver(&self, sandbox: &Sandbox) {
        match self.store(sandbox, true) {
            Some((entry, true)) => self.announce(&entry.key),
            Some((entry, false)) => self.waiters.wake(&entry.key),
            None => {}
        }
    }

    /// Returns the resulting entry, and whether it is new.
    fn store(&self, sandbox: &Sandbox, delivered: bool) -> Option<(Arc<Entry>, bool)> {
        let mut entry = Entry::read(sandbox, &self.keys)?;
        if self.slim || entry.spec.state == DesiredState::Stopped {
            entry.drop_controller_fields();
        }
        if entry.status.phase == Phase::Stopped {
            entry.drop_payload();
        }
        let entry = Arc::new(entry);
        let mut tables = self.tables.write();
        if delivered {
            tables.history.delivered(entry.version());
            self.announce_version(&tables);
        }
        if let Some(known) = tables.entries.get(&entry.key).cloned() {
            if known.is_newer_than(&entry) {
                return Some((known, false));
            }
            // The same version of the same object.
            if known.uid == entry.uid && known.resource_version == entry.resource_version {
                if delivered {
                    tables.undelivered.remove(&entry.key);
                }
                return Some((known, false));
            }
        }
        if tables.deleted_uids.contains(&entry.uid) {
            return Some((entry, false));
        }
        tables.remove(&entry.key);
        tables.insert(entry.clone());
        self.publish(&mut tables, &entry, false);
        let key = entry.key.clone();
        if delivered {
            tables.delivered_at.insert(key, Instant::now());
        } else {
            tables.undelivered.insert(key);
        }
        Some((entry, true))
    }

    /// Returns whether a complete list has been seen.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.tables.read().entries.get(key).cloned()
    }

    pub fn by_runtime_id(&self, id: &str) -> Option<Arc<Entry>> {
        let tables = self.tables.read();
        tables.entries.get(tables.by_runtime_id.get(id)?).cloned()
    }

    /// Returns the sandbox with this loopback URL; `None` if several share it.
    pub fn by_loopback_address(&self, address: Ipv4Addr) -> Option<Arc<Entry>> {
        let tables = self.tables.read();
        let from = (address, Key::default());
        let mut keys = tables.by_loopback_address.range(from..);
        let mut next = || keys.next().filter(|(known, _)| *known == address);
        match (next(), next()) {
            (Some((_, key)), None) => tables.entries.get(key).cloned(),
            _ => None,
        }
    }

    /// Returns the newest sandbox of a session.
    pub fn by_session(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let tables = self.tables.read();
        let session = (tenant.to_owned(), session.to_owned());
        let epochs = tables.by_session.get(&session)?;
        tables.entries.get(epochs.values().next_back()?).cloned()
    }

    /// Returns all entries that `filter` accepts, in order of their keys.
    pub fn list(&self, filter: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let tables = self.tables.read();
        let found = tables.entries.values().filter(|e| filter(e));
        let mut found: Vec<_> = found.cloned().collect();
        drop(tables);
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// Returns all Sandboxes of a tenant's sessions, in order of their keys.
    pub fn of_tenant(&self, tenant: &str) -> Vec<Arc<Entry>> {
        let tables = self.tables.read();
        let known = tables.by_tenant.get(tenant);
        let keys = known.into_iter().flat_map(|known| &known.keys);
        keys.filter_map(|key| tables.entries.get(key).cloned())
            .collect()
    }

    /// Returns the totals of a tenant's sandboxes, tombstones included.
    pub fn tenant_totals(&self, tenant: &str) -> TenantTotals {
        let tables = self.tables.read();
        let known = tables.by_tenant.get(tenant);
        known.map_or_else(TenantTotals::default, |known| TenantTotals {
            sandboxes: known.keys.len(),
            payload_bytes: known.payload_bytes,
        })
    }

    /// Returns whether the watch delivered a change of this object less than `age` ago. A later
    /// change may then be on its way.
    pub fn changed_within(&self, key: &Key, age: Duration) -> bool {
        let tables = self.tables.read();
        let delivered_at = tables.delivered_at.get(key);
        delivered_at.is_some_and(|at| at.elapsed() < age)
    }

    /// Returns the number of Sandboxes that have not been started yet or are being started.
    pub fn starts_in_progress(&self) -> usize {
        let counts = &self.tables.read().status_counts;
        counts.count(Phase::Pending) + counts.count(Phase::Starting)
    }

    /// Returns the number of Sandboxes per phase name.
    pub fn phase_counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.read().status_counts.by_phase().collect()
    }

    /// Returns the number of Sandboxes that are not ready yet per reason, also of reasons that none
    /// has any more.
    pub fn starting_counts(&self) -> Vec<(&'static str, usize)> {
        self.tables.read().status_counts.starting().collect()
    }

    /// Subscribes to the keys of changed and removed objects. A receiver that lags has to read all.
    pub fn changes(&self) -> broadcast::Receiver<Key> {
        self.changes.subscribe()
    }

    fn announce(&self, key: &Key) {
        // Fails only without receivers.
        let _ = self.changes.send(key.clone());
        self.waiters.wake(key);
    }
}

impl Tables {
    fn insert(&mut self, entry: Arc<Entry>) {
        let key = entry.key.clone();
        self.status_counts.add(&entry.status);
        let runtime_id = entry.runtime_id.clone();
        let address = loopback_address(&runtime_id);
        self.by_loopback_address.insert((address, key.clone()));
        self.by_runtime_id.insert(runtime_id, key.clone());
        if let Some(session) = entry.session() {
            let (tenant, id) = (session.tenant.clone(), session.id.clone());
            let known = self.by_tenant.entry(tenant.clone()).or_default();
            known.keys.insert(key.clone());
            known.payload_bytes += entry.payload_bytes;
            let epochs = self.by_session.entry((tenant, id)).or_default();
            epochs.insert(session.epoch, key.clone());
        }
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.undelivered.remove(key);
        self.status_counts.remove(&entry.status);
        let address = loopback_address(&entry.runtime_id);
        self.by_loopback_address.remove(&(address, key.clone()));
        if self.by_runtime_id.get(&entry.runtime_id) == Some(key) {
            self.by_runtime_id.remove(&entry.runtime_id);
        }
        let Some(session) = entry.session() else {
            return;
        };
        if let Some(known) = self.by_tenant.get_mut(&session.tenant) {
            known.keys.remove(key);
            known.payload_bytes -= entry.payload_bytes;
            if known.keys.is_empty() {
                self.by_tenant.remove(&session.tenant);
            }
        }
        let session = (session.tenant.clone(), session.id.clone());
        if let Some(epochs) = self.by_session.get_mut(&session) {
            epochs.retain(|_, held| held != key);
            if epochs.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }
}
