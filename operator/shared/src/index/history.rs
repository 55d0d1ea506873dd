//! The recent past of the index: the version up to which the watch has delivered everything, and the
//! last deletions. A reader that was away continues from a [`Cursor`], also one of another process.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::str::FromStr;
use std::sync::Arc;

use super::{Entry, Key};

/// Remembered deletions of sandboxes with a session, each of about 200 bytes.
pub(super) const MAX_DELETIONS: usize = 4096;
/// Version of a deletion that the watch has not delivered: every reader is told of it.
const UNKNOWN_VERSION: u64 = u64::MAX;

/// Position of a reader: it has seen every change up to this version. Versions of the Kubernetes API
/// are one sequence, so a cursor of one process is valid in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub version: u64,
    /// Number of the list that the index began with. It proves that the cursor is not older than the
    /// list, of which only the versions of its objects are known.
    pub(super) list: u32,
}

/// One change of the index.
#[derive(Debug, Clone)]
pub struct Update {
    /// Number of the change, in order.
    pub sequence: u64,
    /// Position after the change. An own write does not advance it.
    pub cursor: Cursor,
    /// The new entry, or the last one of a removed object.
    pub entry: Arc<Entry>,
    pub is_removed: bool,
}

/// Deleted sandbox of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    pub key: Key,
    pub runtime_id: String,
    pub session_id: String,
    tenant: String,
    version: u64,
}

#[derive(Debug)]
pub(super) struct History {
    sequence: u64,
    /// Highest version that the watch has delivered. A list in progress does not advance it, because
    /// the order of a list is not that of versions.
    version: u64,
    /// Highest version in the list in progress; `None` between lists.
    listing: Option<u64>,
    /// Random number of the last complete list.
    list: u32,
    /// First version that the watch delivered after the list. The list is older than it, so all
    /// later deletions are known.
    live_since: Option<u64>,
    /// Highest version of a forgotten deletion.
    forgotten: u64,
    deletions: VecDeque<Deletion>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            sequence: 0,
            version: 0,
            listing: Some(0),
            list: 0,
            live_since: None,
            forgotten: 0,
            deletions: VecDeque::new(),
        }
    }
}

impl History {
    pub(super) fn cursor(&self) -> Cursor {
        Cursor {
            version: self.version,
            list: self.list,
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Notes that a list has begun. Changes before its end are not known one by one.
    pub(super) fn begin_list(&mut self) {
        self.listing = Some(0);
        self.live_since = None;
        self.forgotten = 0;
        self.deletions.clear();
    }

    pub(super) fn end_list(&mut self) {
        let listed = self.listing.unwrap_or_default();
        self.begin_list();
        self.listing = None;
        self.version = self.version.max(listed);
        // Keyed at random for each value.
        let random = RandomState::new().build_hasher().finish();
        self.list = u32::try_from(random >> 32).unwrap_or_default();
    }

    /// Notes a version that the watch or its list delivered.
    pub(super) fn delivered(&mut self, version: Option<u64>) {
        let Some(version) = version else { return };
        if let Some(highest) = &mut self.listing {
            *highest = version.max(*highest);
        } else if version > self.version {
            self.version = version;
            self.live_since.get_or_insert(version);
        }
    }

    /// Notes the removal of an entry at a version, which is not known if a lookup found it missing.
    pub(super) fn deleted(&mut self, entry: &Entry, version: Option<u64>) {
        let Some(session) = entry.session().filter(|_| self.listing.is_none()) else {
            return;
        };
        self.deletions.push_back(Deletion {
            key: entry.key.clone(),
            runtime_id: entry.runtime_id.clone(),
            session_id: session.id.clone(),
            tenant: session.tenant.clone(),
            version: version.unwrap_or(UNKNOWN_VERSION),
        });
        if self.deletions.len() > MAX_DELETIONS
            && let Some(oldest) = self.deletions.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.version.min(self.version));
        }
    }

    /// Returns the deletions of a tenant after a cursor; `None` if some may not be known.
    pub(super) fn deletions_after(&self, cursor: Cursor, tenant: &str) -> Option<Vec<Deletion>> {
        let is_of_this_list = cursor.list == self.list;
        let is_live = self.live_since.is_some_and(|since| cursor.version >= since);
        let is_complete = self.listing.is_none()
            && cursor.version <= self.version
            && cursor.version >= self.forgotten
            && (is_of_this_list || is_live);
        let of_tenant =
            |deletion: &&Deletion| deletion.version > cursor.version && deletion.tenant == tenant;
        is_complete.then(|| self.deletions.iter().filter(of_tenant).cloned().collect())
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.version, self.list)
    }
}

/// A text that is not a cursor.
#[derive(Debug, thiserror::Error)]
#[error("not a cursor")]
pub struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (version, list) = text.split_once('-').ok_or(InvalidCursor)?;
        Ok(Self {
            version: version.parse().map_err(|_| InvalidCursor)?,
            list: u32::from_str_radix(list, 16).map_err(|_| InvalidCursor)?,
        })
    }
}
