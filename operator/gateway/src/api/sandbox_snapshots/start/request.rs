//! Body of a start from a snapshot, and its validation. Unknown fields are ignored, and named in the
//! response.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::ApiError;
use crate::api::start::environment;
use crate::api::start::request::{check_session_id, unknown_fields};
use crate::sandbox_snapshots::{SnapshotError, random_letters};

/// Sandboxes that one call may start.
const MAX_STARTS: usize = 32;

// It can hold secrets, so it has no `Debug`.
/// Body of a start from a snapshot. At most one of `session_id`, `session_ids` and `count`; without
/// them, one sandbox starts.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct SnapshotStartRequest {
    /// Name of the session, as in a start.
    session_id: Option<String>,
    /// Names of 1 to 32 sessions.
    session_ids: Option<Vec<String>>,
    /// Number of sandboxes, 1 to 32, whose sessions get new names.
    count: Option<u32>,
    /// Environment variables of the sandboxes, which do not have those of the snapshot's sandbox.
    environment: Option<Map<String, Value>>,
    #[serde(flatten)]
    #[schemars(skip)]
    unknown: Map<String, Value>,
}

/// Validated request, also without `Debug`.
pub(super) struct SnapshotStart {
    pub(super) sessions: Sessions,
    pub(super) environment: Arc<BTreeMap<String, String>>,
    /// Remark for `status_detail`.
    pub(super) note: Option<String>,
}

/// Sessions that get a sandbox.
#[derive(Debug)]
pub(super) enum Sessions {
    Named(Vec<String>),
    /// This many new ones.
    Generated(usize),
}

impl SnapshotStartRequest {
    pub(super) fn check(self) -> Result<SnapshotStart, ApiError> {
        let note = unknown_fields(&self.unknown);
        let sessions = sessions(self.session_id, self.session_ids, self.count)?;
        let environment = environment::read(self.environment.unwrap_or_default())?;
        Ok(SnapshotStart {
            sessions,
            environment: Arc::new(environment),
            note,
        })
    }
}

impl Sessions {
    pub(super) fn are_generated(&self) -> bool {
        matches!(self, Self::Generated(_))
    }

    /// Returns the session ids; new ones begin with the name of the snapshot.
    pub(super) fn ids(self, snapshot: &str) -> Result<Vec<String>, SnapshotError> {
        match self {
            Self::Named(ids) => Ok(ids),
            Self::Generated(count) => (0..count)
                .map(|_| Ok(format!("{snapshot}-{}", random_letters()?)))
                .collect(),
        }
    }
}

fn sessions(
    id: Option<String>,
    ids: Option<Vec<String>>,
    count: Option<u32>,
) -> Result<Sessions, ApiError> {
    let ids = match (id, ids, count) {
        (None, None, None) => return Ok(Sessions::Generated(1)),
        (None, None, Some(count)) => return generated(count),
        (Some(id), None, None) => vec![id],
        (None, Some(ids), None) => ids,
        _ => {
            return Err(ApiError::bad_request(
                "session_id, session_ids and count exclude each other",
            ));
        }
    };
    if !(1..=MAX_STARTS).contains(&ids.len()) {
        return Err(ApiError::bad_request(format!(
            "session_ids must have 1 to {MAX_STARTS} entries"
        )));
    }
    let ids = ids.into_iter().map(check_session_id);
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let distinct: HashSet<_> = ids.iter().collect();
    if distinct.len() < ids.len() {
        return Err(ApiError::bad_request("session_ids must be distinct"));
    }
    Ok(Sessions::Named(ids))
}

fn generated(count: u32) -> Result<Sessions, ApiError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if !(1..=MAX_STARTS).contains(&count) {
        return Err(ApiError::bad_request(format!(
            "count must be 1 to {MAX_STARTS}"
        )));
    }
    Ok(Sessions::Generated(count))
}
