//! Snapshot that sandboxes begin with, and the node on which their Pods find its volume.

use crds::SandboxSnapshot;
use crds::sandbox::Source;
use shared::index::Key;

use crate::context::Context;
use crate::facts::{PodPhase, SourceState};

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
    let mut state = SourceState::read(&source.snapshot, snapshot.as_deref(), tenant);
    if let (SourceState::Ready(volume), Some(snapshot)) = (&mut state, snapshot) {
        volume.node = node_of_parent(context, key, &snapshot).or_else(|| {
            context
                .warm_pods
                .node_beside(&key.namespace, &volume.snapshot)
        });
    }
    state
}

/// Node of the Pod whose state the snapshot has. One that still starts may be unable to attach the volume.
fn node_of_parent(context: &Context, key: &Key, snapshot: &SandboxSnapshot) -> Option<String> {
    let uid = snapshot.status.as_ref()?.sandbox_uid.as_deref()?;
    let parent = key.sibling(&snapshot.spec.sandbox);
    let pod = context.pods.get(&parent, uid, None)?;
    pod.node.clone().filter(|_| pod.phase == PodPhase::Running)
}
