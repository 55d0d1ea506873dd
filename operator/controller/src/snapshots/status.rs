//! Status of snapshots. Every write enters the index at once.

use crds::SandboxSnapshot;
use crds::names::CONTROLLER_FIELD_MANAGER;
use crds::snapshot::{SandboxSnapshotStatus, SnapshotPhase};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::watch::WatchSink as _;

use super::api;
use crate::context::Context;

/// Characters of a message.
const MAX_MESSAGE: usize = 1000;

/// Writes what a snapshot waits for, unless the status says so.
pub(super) async fn wait(
    context: &Context,
    snapshot: &SandboxSnapshot,
    message: &str,
) -> Result<(), CallError> {
    let known = snapshot.status.as_ref();
    if known.is_some_and(|status| status.message.as_deref() == Some(message)) {
        return Ok(());
    }
    let status = SandboxSnapshotStatus {
        message: Some(message.to_owned()),
        ..SandboxSnapshotStatus::default()
    };
    write(context, snapshot, status).await.map(drop)
}

pub(super) async fn fail(
    context: &Context,
    snapshot: &SandboxSnapshot,
    message: String,
) -> Result<(), CallError> {
    let name = snapshot.name_any();
    tracing::warn!(name, message, "no snapshot was taken");
    context.metrics.record_snapshot("failed");
    let status = SandboxSnapshotStatus {
        phase: SnapshotPhase::Failed,
        message: Some(message),
        ..snapshot.status.clone().unwrap_or_default()
    };
    write(context, snapshot, status).await.map(drop)
}

/// Replaces fields of the status. `false` if the object was deleted or replaced.
pub(super) async fn write(
    context: &Context,
    snapshot: &SandboxSnapshot,
    mut status: SandboxSnapshotStatus,
) -> Result<bool, CallError> {
    let message = status.message.take();
    status.message = message.map(|message| message.chars().take(MAX_MESSAGE).collect());
    let mut patch = json!({"metadata": {"uid": snapshot.metadata.uid}, "status": status});
    if status.message.is_none() {
        patch["status"]["message"] = serde_json::Value::Null;
    }
    let params = PatchParams::apply(CONTROLLER_FIELD_MANAGER);
    let (name, patch) = (snapshot.name_any(), Patch::Merge(patch));
    let api = api(context, snapshot);
    match with_timeout(api.patch_status(&name, &params, &patch)).await {
        Ok(written) => {
            context.events.publish_snapshot_change(snapshot, &written);
            context.snapshots.apply(written);
            Ok(true)
        }
        // A conflict is one of uids.
        Err(error) if error.is_not_found() || error.is_conflict() => {
            context.snapshots.forget(snapshot);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
