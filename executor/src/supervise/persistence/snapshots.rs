//! Snapshots: copies of the state of a command that goes on, each in a directory of the volume, and
//! the start of other sandboxes with them (`docs/specs/supervisor.md`, section 12).

mod begin;
mod layer;
mod meta;
mod take;

use crds::contract::persistence::StateAccess;

pub(super) use self::begin::PendingSnapshot;
pub(in crate::supervise) use self::layer::{Layer, LayerError, LayerSource};
pub(in crate::supervise) use self::take::interrupt;

/// Directory of a snapshot with processes.
const PROCESSES: &str = "processes";
/// Archive of all files of the workspace.
const WORKSPACE: &str = "workspace";
/// Archive of the changed files outside of it.
const ROOT: &str = "root";

/// Access to the archives of a snapshot.
fn access(key: &str, image: &str) -> StateAccess {
    StateAccess {
        key: key.to_owned(),
        image: image.to_owned(),
        source: None,
    }
}
