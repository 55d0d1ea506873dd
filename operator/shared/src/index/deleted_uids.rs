//! Bounded memory of recently deleted uids. A response to a write or lookup may arrive after the
//! deletion event and must not resurrect the object: no watch would remove it again.

use crate::recent_map::RecentMap;

/// Maximum number of remembered uids. Responses are late by seconds, not by so many deletions.
const MAX_REMEMBERED_UIDS: usize = 4096;

/// Uids of deleted objects. The API server never reuses one.
#[derive(Debug, Default)]
pub struct DeletedUids(RecentMap<String, (), MAX_REMEMBERED_UIDS>);

impl DeletedUids {
    pub fn insert(&mut self, uid: &str) {
        self.0.insert(uid.to_owned(), ());
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.0.get(uid).is_some()
    }
}
