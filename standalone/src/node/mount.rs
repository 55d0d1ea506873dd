//! Steps that build the file system of a container.

use std::path::{Path, PathBuf};

/// One step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mount {
    Bind {
        from: PathBuf,
        to: PathBuf,
        writable: bool,
    },
    Symlink {
        target: PathBuf,
        at: PathBuf,
    },
    Dir {
        at: PathBuf,
    },
}

impl Mount {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Bind { to: at, .. } | Self::Symlink { at, .. } | Self::Dir { at } => at,
        }
    }

    /// The mounted file or directory of the host.
    pub(crate) fn source_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Bind { from, .. } => Some(from),
            Self::Symlink { .. } | Self::Dir { .. } => None,
        }
    }
}
