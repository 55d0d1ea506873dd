//! Errors of snapshots, with texts for clients of the gateway.

use http::StatusCode;

use crate::sandboxes::SandboxError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("no such snapshot")]
    Unknown,
    #[error("a snapshot needs a running sandbox, and this one {0}")]
    NotRunning(&'static str),
    #[error("the snapshot is not ready: it is {0}")]
    NotReady(&'static str),
    #[error("the snapshot has failed: {0}")]
    Failed(String),
    #[error("the snapshot does not say what its sandbox ran, so none can start from it")]
    NoTemplate,
    #[error("the sandbox of the snapshot does not run")]
    SourceNotRunning,
    #[error(
        "a snapshot of level Workspace has no files outside of the workspace, so it is no image"
    )]
    NoImage,
    #[error("the snapshot does not say which image its sandbox ran")]
    UnknownImage,
    #[error("this API key has {max} snapshots: delete one before the next")]
    TooMany { max: u32 },
    #[error("the cluster lacks the resource SandboxSnapshot")]
    NotInstalled,
    #[error(transparent)]
    Cluster(#[from] SandboxError),
    #[error("cannot make a random name: internal error")]
    Random,
}

impl SnapshotError {
    /// Returns the status code, and the error category: a fixed label for logs and metrics.
    pub(crate) fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "unknown-snapshot"),
            Self::NotRunning(_) | Self::SourceNotRunning => (StatusCode::CONFLICT, "not-running"),
            Self::NotReady(_) => (StatusCode::CONFLICT, "snapshot-not-ready"),
            Self::Failed(_) => (StatusCode::CONFLICT, "snapshot-failed"),
            Self::NoTemplate => (StatusCode::CONFLICT, "snapshot-template"),
            Self::NoImage | Self::UnknownImage => (StatusCode::CONFLICT, "snapshot-image"),
            Self::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "too-many-snapshots"),
            Self::NotInstalled => (StatusCode::SERVICE_UNAVAILABLE, "not-installed"),
            Self::Cluster(error @ (SandboxError::Refused(_) | SandboxError::TooLarge)) => {
                (StatusCode::BAD_REQUEST, error.category())
            }
            Self::Cluster(error) => (StatusCode::SERVICE_UNAVAILABLE, error.category()),
            Self::Random => (StatusCode::INTERNAL_SERVER_ERROR, "random"),
        }
    }
}
