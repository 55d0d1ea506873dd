//! Events of a change of a snapshot's status: a pure function of the statuses before and after a write.

use crds::snapshot::{SandboxSnapshotStatus, SnapshotPhase};

use super::transition::{EventContent, normal, warning};

/// Event of a change between two statuses of one snapshot: it has ended.
pub(super) fn event_for_snapshot_change(
    before: &SandboxSnapshotStatus,
    after: &SandboxSnapshotStatus,
) -> Option<EventContent> {
    if before.phase == after.phase {
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
        _ => None,
    }
}
