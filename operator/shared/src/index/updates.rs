//! Reads for those who follow the sandboxes of one tenant: changes as they happen, pages of the
//! present state, and the position between them.

#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::timeout;

use super::{Cursor, Deletion, Entry, Index, Key, Tables, Update};

/// Entries of a tenant in order of their keys.
#[derive(Debug)]
pub struct TenantPage {
    pub entries: Vec<Arc<Entry>>,
    /// Number of the last change that these entries include.
    pub sequence: u64,
}

impl Index {
    /// Subscribes to changed and removed entries, in order. A relist that finds nothing new is
    /// silent, other than in [`Index::changes`].
    pub fn updates(&self) -> broadcast::Receiver<Update> {
        self.updates.subscribe()
    }

    /// Returns the position up to which the watch has delivered all changes.
    pub fn cursor(&self) -> Cursor {
        self.tables.read().history.cursor()
    }

    /// Waits until the watch has delivered this version, at most for `limit`.
    pub async fn wait_version(&self, version: u64, limit: Duration) {
        let mut delivered = self.delivered.subscribe();
        // The sender lives in the index; a timeout is no error.
        let _ = timeout(limit, delivered.wait_for(|known| *known >= version)).await;
    }

    /// Returns the deletions of a tenant's sandboxes after a cursor. `None` if the cursor is too old,
    /// newer than what the watch has delivered, or of another index that had another list.
    pub fn deletions_after(&self, cursor: Cursor, tenant: &str) -> Option<Vec<Deletion>> {
        let tables = self.tables.read();
        let mut deletions = tables.history.deletions_after(cursor, tenant)?;
        // A session gets the same name again when its tombstone is gone. The reader may know that one.
        deletions.retain(|deletion| !tables.entries.contains_key(&deletion.key));
        Some(deletions)
    }

    /// Returns at most `limit` sandboxes of a tenant's sessions between two keys.
    pub fn page_of_tenant(
        &self,
        tenant: &str,
        range: (Bound<Key>, Bound<Key>),
        limit: usize,
    ) -> TenantPage {
        let tables = self.tables.read();
        let known = tables.by_tenant.get(tenant).into_iter();
        let keys = known.flat_map(|known| known.keys.range(range.clone()));
        let entries = keys.filter_map(|key| tables.entries.get(key).cloned());
        TenantPage {
            entries: entries.take(limit).collect(),
            sequence: tables.history.sequence(),
        }
    }

    /// Sends a change while the tables are locked, so that the order of changes is that of versions.
    pub(super) fn publish(&self, tables: &mut Tables, entry: &Arc<Entry>, is_removed: bool) {
        let sequence = tables.history.next_sequence();
        if self.updates.receiver_count() == 0 {
            return;
        }
        // Fails only without receivers.
        let _ = self.updates.send(Update {
            sequence,
            cursor: tables.history.cursor(),
            entry: entry.clone(),
            is_removed,
        });
    }

    /// Tells those who wait for a version.
    pub(super) fn announce_version(&self, tables: &Tables) {
        let version = tables.history.cursor().version;
        self.delivered.send_if_modified(|known| {
            let is_later = version > *known;
            *known = version.max(*known);
            is_later
        });
    }
}
