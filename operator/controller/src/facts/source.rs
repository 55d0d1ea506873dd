//! Snapshot that a sandbox begins with.

use crds::SandboxSnapshot;
use crds::snapshot::SnapshotPhase;
use kube::ResourceExt as _;

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

/// Volume with a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceVolume {
    /// Uid of the snapshot.
    pub id: String,
    /// Name of the PVC.
    pub claim: String,
    /// Node of a Pod that uses the volume, which can be attached to one node only.
    pub node: Option<String>,
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
        match (snapshot.phase(), status.claim, snapshot.uid()) {
            (SnapshotPhase::Ready, Some(claim), Some(id)) => Self::Ready(SourceVolume {
                id,
                claim,
                node: None,
            }),
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
