//! Snapshot that a sandbox begins with.

use crds::SandboxSnapshot;
use crds::snapshot::SnapshotPhase;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

/// State of the snapshot of the spec, as far as the sandbox needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceState {
    /// There is none, or the sandbox has begun with it.
    #[default]
    None,
    /// It does not exist, with a sentence for people.
    Missing(String),
    /// It is being taken.
    Waiting(String),
    /// It will never be complete, or is not for this sandbox.
    Unusable(String),
    Ready(SourceVolume),
}

/// Snapshot as its Pods name it, in [`SNAPSHOT_ANNOTATION`](super::SNAPSHOT_ANNOTATION). Uid and time
/// decide on its key, also when the object is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotIdentity {
    pub uid: String,
    pub created_at: Option<Timestamp>,
}

/// Volume with a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceVolume {
    pub snapshot: SnapshotIdentity,
    /// Name of the PVC.
    pub claim: String,
}

impl SnapshotIdentity {
    /// Identity of a snapshot. `None` if it lacks what the API server always sets.
    pub(crate) fn of(snapshot: &SandboxSnapshot) -> Option<Self> {
        Some(Self {
            uid: snapshot.uid()?,
            created_at: snapshot.creation_timestamp().map(|at| at.0),
        })
    }
}

impl SourceState {
    /// Reads the snapshot `name` of the spec of a sandbox of `tenant`.
    pub(crate) fn read(
        name: &str,
        snapshot: Option<&SandboxSnapshot>,
        tenant: Option<&str>,
    ) -> Self {
        let Some(snapshot) = snapshot else {
            return Self::Missing(format!("SandboxSnapshot {name} does not exist"));
        };
        let status = snapshot.status.clone().unwrap_or_default();
        // A sandbox of a tenant has snapshots of that tenant only.
        if tenant.is_some() && snapshot.tenant() != tenant {
            return Self::Unusable(format!("SandboxSnapshot {name} belongs to another tenant"));
        }
        let identity = SnapshotIdentity::of(snapshot);
        match (snapshot.phase(), status.claim, identity) {
            (SnapshotPhase::Ready, Some(claim), Some(snapshot)) => {
                Self::Ready(SourceVolume { snapshot, claim })
            }
            (SnapshotPhase::Failed, ..) => {
                let message = status.message.unwrap_or_default();
                Self::Unusable(format!("SandboxSnapshot {name} has failed: {message}"))
            }
            _ => Self::Waiting(format!("SandboxSnapshot {name} is not ready")),
        }
    }

    pub(crate) fn volume(&self) -> Option<&SourceVolume> {
        match self {
            Self::Ready(volume) => Some(volume),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crds::snapshot::{SandboxSnapshotSpec, SandboxSnapshotStatus};

    use super::*;

    #[test]
    fn sandboxes_of_tenants_begin_with_snapshots_of_their_own() {
        let mut snapshot = SandboxSnapshot::new("s", SandboxSnapshotSpec::default());
        snapshot.metadata.uid = Some("uid".into());
        let read =
            |snapshot: &SandboxSnapshot, tenant| SourceState::read("s", Some(snapshot), tenant);
        let with = |phase, tenant: Option<&str>| SandboxSnapshot {
            status: Some(SandboxSnapshotStatus {
                phase,
                claim: Some("c".into()),
                tenant: tenant.map(str::to_owned),
                ..SandboxSnapshotStatus::default()
            }),
            ..snapshot.clone()
        };
        let is_ready = |state| matches!(state, SourceState::Ready(_));
        let of_alice = with(SnapshotPhase::Ready, Some("alice"));
        let of_none = with(SnapshotPhase::Ready, None);
        assert!(is_ready(read(&of_alice, Some("alice"))));
        assert!(is_ready(read(&of_none, None)) && is_ready(read(&of_alice, None)));
        for (snapshot, tenant) in [(&of_alice, "bob"), (&of_none, "bob")] {
            let state = read(snapshot, Some(tenant));
            assert!(matches!(state, SourceState::Unusable(_)), "{state:?}");
        }
        let saving = with(SnapshotPhase::Saving, None);
        assert!(matches!(read(&saving, None), SourceState::Waiting(_)));
        let failed = with(SnapshotPhase::Failed, None);
        assert!(matches!(read(&failed, None), SourceState::Unusable(_)));
        let missing = SourceState::read("s", None, None);
        assert!(matches!(missing, SourceState::Missing(_)));
    }
}
