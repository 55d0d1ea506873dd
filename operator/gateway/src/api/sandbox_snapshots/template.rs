//! Spec of the sandboxes that start from a snapshot: that of its sandbox, with other state.

use crds::SandboxSnapshot;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{DesiredState, SandboxSpec, Source};
use crds::snapshot::SnapshotPhase;
use kube::ResourceExt as _;

use crate::GatewayConfig;
use crate::sandbox_snapshots::SnapshotError;

pub(super) fn check_ready(snapshot: &SandboxSnapshot) -> Result<(), SnapshotError> {
    match snapshot.phase() {
        SnapshotPhase::Pending => Err(SnapshotError::NotReady("pending")),
        SnapshotPhase::Saving => Err(SnapshotError::NotReady("saving")),
        SnapshotPhase::Failed => {
            let unknown = || "its controller gave no reason".to_owned();
            let status = snapshot.status.as_ref();
            let reason = status.and_then(|status| status.message.clone());
            Err(SnapshotError::Failed(reason.unwrap_or_else(unknown)))
        }
        SnapshotPhase::Ready => Ok(()),
    }
}

/// Returns the spec without session and environment. The snapshot must be ready.
pub(super) fn spec(
    mut snapshot: SandboxSnapshot,
    config: &GatewayConfig,
) -> Result<SandboxSpec, SnapshotError> {
    check_ready(&snapshot)?;
    let name = snapshot.name_any();
    let status = snapshot.status.take().unwrap_or_default();
    let template = status.template.map(serde_json::from_value::<SandboxSpec>);
    let template = match template {
        Some(Ok(template)) if template.image.is_some() => template,
        Some(Err(error)) => {
            tracing::warn!(name, %error, "the template of a snapshot is malformed");
            return Err(SnapshotError::NoTemplate);
        }
        Some(Ok(_)) | None => return Err(SnapshotError::NoTemplate),
    };
    let level = status.level.unwrap_or_default();
    let workspace = template.workspace.unwrap_or_else(|| config.workspace());
    Ok(SandboxSpec {
        // A sandbox that begins with a state needs a volume that can have it.
        persistence: Some(level.max(PersistenceLevel::Root)),
        workspace: Some(workspace),
        source: Some(Source { snapshot: name }),
        state: DesiredState::Running,
        sealed_env: None,
        pool: None,
        session: None,
        key_rotation: None,
        ..template
    })
}
