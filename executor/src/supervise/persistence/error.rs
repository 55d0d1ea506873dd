//! Errors of saving and restoring files outside of the workspace. Their texts are reasons for users.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("cannot {action}: {source}")]
    Io {
        action: &'static str,
        source: io::Error,
    },
    #[error("the changed files exceed the limit of {0} bytes")]
    Bytes(u64),
    #[error("the changed files exceed the limit of {0} files")]
    Files(u64),
    #[error("the workspace exceeds the limit of {0} bytes")]
    WorkspaceBytes(u64),
    #[error("the workspace exceeds the limit of {0} files")]
    WorkspaceFiles(u64),
    #[error("the save exceeds the limit of {0} s")]
    Time(u64),
    #[error(
        "the changed files are on the volume, which has not confirmed within {0} s that they are \
         written"
    )]
    NotSynced(u64),
    #[error("a pause or the end of the Pod came before")]
    Interrupted,
    #[error("the saved state is damaged: {0}")]
    Damaged(&'static str),
    #[error("the saved state has version {0}, which this supervisor does not read")]
    Version(u32),
    #[error("the container must start as uid 0 to keep files outside of the workspace")]
    NotRoot,
    #[error("the program criu is not in the executor image")]
    NoCriu,
    #[error("the key of the saved state is missing or not valid")]
    Key,
    #[error("the Pod keeps the workspace alone, and has no room for a snapshot")]
    NoStore,
    #[error("the snapshot that the sandbox begins with is not there")]
    NoSnapshot,
}

impl StateError {
    /// Error of the workspace, where limits of changed files are limits of all files.
    pub(super) fn of_workspace(self) -> Self {
        match self {
            Self::Bytes(limit) => Self::WorkspaceBytes(limit),
            Self::Files(limit) => Self::WorkspaceFiles(limit),
            other => other,
        }
    }

    /// For `map_err`: "cannot ACTION".
    pub(super) fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }
}
