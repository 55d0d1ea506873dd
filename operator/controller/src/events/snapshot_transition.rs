//! Events of a change of a snapshot's status: a pure function of the phase before a write and the status
//! after it.

use crds::snapshot::{SandboxSnapshotStatus, SnapshotPhase};

use super::transition::{EventContent, normal, warning};

/// Event of the end of a snapshot.
pub(super) fn event_for_snapshot_change(
    before: SnapshotPhase,
    after: &SandboxSnapshotStatus,
) -> Option<EventContent> {
    if before == after.phase {
        return None;
    }
    let message = after.message.as_deref();
    match after.phase {
        SnapshotPhase::Ready => {
            let level = after.level.unwrap_or_default();
            let mut note = format!("the snapshot has the state of level {level:?}");
            if let Some(less) = message {
                note = format!("{note}; {less}");
            }
            Some(normal("Ready", "Snapshot", note))
        }
        SnapshotPhase::Failed => {
            let why = message.unwrap_or("no snapshot was taken").to_owned();
            Some(warning("Failed", "Snapshot", why))
        }
        SnapshotPhase::Pending | SnapshotPhase::Saving => None,
    }
}
