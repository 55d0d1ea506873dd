//! Steps that build the file system of a container.

use std::path::{Path, PathBuf};

/// Mount point of the node's binary in every container. Its entry is the node's tag, by which
/// [`super::leftover_containers`] finds containers.
pub(crate) const MARKER_DIR: &str = "/.sandbox-node";

/// One step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mount {
    Bind {
        from: PathBuf,
        to: PathBuf,
        writable: bool,
    },
    /// A volume, or what is below it at `below`, as it is found when the container starts.
    Volume {
        directory: PathBuf,
        below: PathBuf,
        to: PathBuf,
        writable: bool,
        /// False if its files have ids of the container's user namespace.
        mapped: bool,
    },
    /// Device or file of the host, with the ids of the host, and bubblewrap's option for it.
    Host {
        from: PathBuf,
        to: PathBuf,
        bind: &'static str,
    },
    Symlink {
        target: PathBuf,
        at: PathBuf,
    },
    Dir {
        at: PathBuf,
    },
    /// Root of a pulled image; mounted by the node before the container starts.
    Overlay(OverlayRoot),
    /// The same when it is mounted on the host.
    Mounted(PathBuf),
}

/// Layers of an image below a private directory for changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverlayRoot {
    /// Directory of all layers of the store.
    pub store: PathBuf,
    /// Names of the layers' directories in the store, topmost first.
    pub layers: Vec<PathBuf>,
    /// Directory of the changes: empty, or those of earlier containers if they are kept.
    pub changes: PathBuf,
    /// Private directory of the container.
    pub scratch: PathBuf,
    /// True if the changes outlive the container.
    pub is_kept: bool,
}

impl Mount {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Bind { to: at, .. }
            | Self::Volume { to: at, .. }
            | Self::Host { to: at, .. }
            | Self::Symlink { at, .. }
            | Self::Dir { at } => at,
            Self::Overlay(_) | Self::Mounted(_) => Path::new("/"),
        }
    }
}
