//! Spec of the sandboxes that start from a snapshot: that of its sandbox, with other state.

use crds::SandboxSnapshot;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{DesiredState, SandboxSpec, Source};
use crds::snapshot::SnapshotPhase;
use kube::ResourceExt as _;

use crate::GatewayConfig;
use crate::sandbox_snapshots::SnapshotError;

/// Returns the spec without session and environment. The snapshot must be ready.
pub(super) fn spec(
    mut snapshot: SandboxSnapshot,
    config: &GatewayConfig,
) -> Result<SandboxSpec, SnapshotError> {
    let (name, phase) = (snapshot.name_any(), snapshot.phase());
    let status = snapshot.status.take().unwrap_or_default();
    match phase {
        SnapshotPhase::Pending => return Err(SnapshotError::NotReady("pending")),
        SnapshotPhase::Saving => return Err(SnapshotError::NotReady("saving")),
        SnapshotPhase::Failed => {
            let unknown = || "its controller gave no reason".to_owned();
            let reason = status.message.unwrap_or_else(unknown);
            return Err(SnapshotError::Failed(reason));
        }
        SnapshotPhase::Ready => {}
    }
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
