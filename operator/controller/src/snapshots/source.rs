//! Snapshot that sandboxes begin with, and the node on which their Pods find its volume.

use crds::SandboxSnapshot;
use crds::sandbox::Source;
use shared::index::Key;

use crate::context::Context;
use crate::facts::{PodPhase, SnapshotIdentity, SourceState};

/// State of the snapshot that the sandbox or the pool of this key begins with, for a sandbox of
/// `tenant`.
pub(crate) fn source_state(
    context: &Context,
    key: &Key,
    source: &Source,
    tenant: Option<&str>,
) -> SourceState {
    if !context.snapshots.is_synced() {
        // It would seem to be missing.
        return SourceState::Waiting("the snapshots have not been read yet".into());
    }
    let snapshot = context.snapshots.get(&key.sibling(&source.snapshot));
    SourceState::read(&source.snapshot, snapshot.as_deref(), tenant)
}

/// Node of a Pod that uses the volume of the snapshot that a sandbox or the Pods of a pool begin with:
/// it can perhaps be attached to one node only.
pub(crate) fn node_of_volume(context: &Context, key: &Key, source: &Source) -> Option<String> {
    let snapshot = context.snapshots.get(&key.sibling(&source.snapshot))?;
    node_of_parent(context, key, &snapshot).or_else(|| {
        let identity = SnapshotIdentity::of(&snapshot)?;
        context.warm_pods.node_beside(&key.namespace, &identity)
    })
}

/// Node of the Pod whose state the snapshot has. One that still starts may be unable to attach the volume.
fn node_of_parent(context: &Context, key: &Key, snapshot: &SandboxSnapshot) -> Option<String> {
    let uid = snapshot.status.as_ref()?.sandbox_uid.as_deref()?;
    let parent = key.sibling(&snapshot.spec.sandbox);
    let pod = context.pods.get(&parent, uid, None)?;
    pod.node.clone().filter(|_| pod.phase == PodPhase::Running)
}
