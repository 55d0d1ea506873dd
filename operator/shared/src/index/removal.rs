//! Removal of entries: deletions that the watch or a request has found, and objects that a new list
//! lacks.

use std::collections::HashSet;

use parking_lot::RwLockWriteGuard;

use super::{Index, Key, Tables};

impl Index {
    /// Removes an object that a request found deleted. A newer object of the same name stays.
    pub fn remove(&self, key: &Key, uid: &str) {
        let mut tables = self.tables.write();
        tables.deleted_uids.insert(uid);
        self.forget(tables, key, uid, None);
    }

    /// Removes an object whose deletion the watch delivered, with the version of the deletion.
    pub fn deliver_deletion(&self, key: &Key, uid: &str, version: Option<u64>) {
        let mut tables = self.tables.write();
        tables.deleted_uids.insert(uid);
        tables.history.delivered(version);
        self.announce_version(&tables);
        self.forget(tables, key, uid, version);
    }

    fn forget(
        &self,
        mut tables: RwLockWriteGuard<'_, Tables>,
        key: &Key,
        uid: &str,
        version: Option<u64>,
    ) {
        let known = tables.entries.get(key).filter(|known| known.uid == uid);
        let Some(known) = known.cloned() else {
            return;
        };
        tables.remove(key);
        tables.history.deleted(&known, version);
        self.publish(&mut tables, &known, true);
        drop(tables);
        self.announce(key);
    }

    /// Begins a list: until [`Index::retain`], objects are delivered in the order of the list.
    pub fn begin_list(&self) {
        self.tables.write().history.begin_list();
    }

    /// Ends a relist: removes all entries that it lacks and marks the index synced. All others are
    /// announced, changed or not, which triggers a reconcile of each.
    pub fn retain(&self, seen: &HashSet<Key>) {
        let missing: Vec<_> = {
            let tables = self.tables.read();
            let missing = tables.entries.values().filter(|e| !seen.contains(&e.key));
            missing.map(|e| (e.key.clone(), e.uid.clone())).collect()
        };
        for (key, uid) in missing {
            // The uid is not remembered as deleted: the list may be older than an own write.
            self.forget(self.tables.write(), &key, &uid, None);
        }
        let mut tables = self.tables.write();
        tables.undelivered.clear();
        tables.history.end_list();
        self.announce_version(&tables);
        drop(tables);
        for key in seen {
            self.announce(key);
        }
        self.synced.send_replace(true);
    }
}
