//! `SnapshotInfo`, a snapshot as clients see it.

use std::time::Duration;

use crds::SandboxSnapshot;
use crds::contract::persistence::PersistenceLevel;
use crds::names::RUNTIME_ID_LABEL;
use crds::snapshot::SnapshotPhase;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::Api;
use shared::index::Key;

/// A snapshot of a sandbox. Unknown fields are null.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct SnapshotInfo {
    snapshot_id: String,
    /// Id of the sandbox that it was made of.
    pub(super) runtime_id: Option<String>,
    /// Session of that sandbox, while it is known.
    session_id: Option<String>,
    status: SnapshotStatus,
    /// State that the snapshot has.
    level: Option<PersistenceLevel>,
    /// Bytes on the volume.
    size_bytes: Option<i64>,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    created_at: Option<Timestamp>,
    /// Time at which the copy was complete.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    saved_at: Option<Timestamp>,
    /// Time at which the snapshot is deleted. Null: never.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    expires_at: Option<Timestamp>,
    /// Reason for which there is no copy, or for which it has less than asked for.
    reason: Option<String>,
}

/// Progress of a snapshot.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SnapshotStatus {
    Pending,
    Saving,
    Ready,
    Failed,
}

impl From<SnapshotPhase> for SnapshotStatus {
    fn from(phase: SnapshotPhase) -> Self {
        match phase {
            SnapshotPhase::Pending => Self::Pending,
            SnapshotPhase::Saving => Self::Saving,
            SnapshotPhase::Ready => Self::Ready,
            SnapshotPhase::Failed => Self::Failed,
        }
    }
}

impl Api {
    pub(super) fn snapshot_info(&self, snapshot: &SandboxSnapshot) -> SnapshotInfo {
        let status = snapshot.status.as_ref();
        let created_at = snapshot.creation_timestamp().map(|at| at.0);
        let (runtime_id, session_id) = self.source_of(snapshot);
        SnapshotInfo {
            snapshot_id: snapshot.name_any(),
            runtime_id,
            session_id,
            status: snapshot.phase().into(),
            level: status.and_then(|status| status.level),
            size_bytes: status.and_then(|status| status.size),
            created_at,
            saved_at: status.and_then(|status| Some(status.saved_at.as_ref()?.0)),
            expires_at: created_at.and_then(|at| expiry(snapshot, at)),
            reason: status.and_then(|status| status.message.clone()),
        }
    }

    /// Returns runtime id and session of the sandbox, which may be gone, or replaced by another one
    /// of its name.
    fn source_of(&self, snapshot: &SandboxSnapshot) -> (Option<String>, Option<String>) {
        let key = Key {
            namespace: self.config().namespace.clone(),
            name: snapshot.spec.sandbox.clone(),
        };
        let status = snapshot.status.as_ref();
        let uid = status.and_then(|status| status.sandbox_uid.as_deref());
        let source = self.sandboxes.index.get(&key);
        let source = source.filter(|entry| uid.is_none_or(|uid| uid == entry.uid));
        let session = source.as_ref().and_then(|entry| entry.session());
        let session = session.filter(|session| snapshot.tenant() == Some(&*session.tenant));
        let session = session.map(|session| session.id.clone());
        let recorded = || snapshot.labels().get(RUNTIME_ID_LABEL).cloned();
        let runtime = source.map(|entry| entry.runtime_id.clone());
        (runtime.or_else(recorded), session)
    }
}

fn expiry(snapshot: &SandboxSnapshot, created_at: Timestamp) -> Option<Timestamp> {
    let after = Duration::from(snapshot.spec.delete_after?);
    let after = SignedDuration::try_from(after).ok()?;
    (!after.is_zero()).then(|| created_at.checked_add(after).ok())?
}
