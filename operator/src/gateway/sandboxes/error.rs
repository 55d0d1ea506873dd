//! What can go wrong between the gateway and the API server, in the words of the gateway.

/// Why a Sandbox could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("there is no such runtime")]
    NotFound,
    #[error("an object of this name exists already")]
    Exists,
    /// The API server refuses the content; its words are for the client.
    #[error("{0}")]
    Refused(String),
    #[error("the Kubernetes API is unavailable; try again")]
    Unavailable(#[source] Box<kube::Error>),
    #[error("the Kubernetes API did not answer in time; try again")]
    Timeout,
    #[error("the gateway does not know all sandboxes yet; try again")]
    NotSynced,
    #[error("the Kubernetes API answered without identity")]
    Incomplete,
}

impl SandboxError {
    /// Fixed name of the case, for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::Refused(_) => "refused",
            Self::Unavailable(_) => "unavailable",
            Self::Timeout => "timeout",
            Self::NotSynced => "not-synced",
            Self::Incomplete => "incomplete",
        }
    }

    /// Whether the same call may succeed in a moment.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<kube::Error> for SandboxError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_already_exists() => Self::Exists,
            kube::Error::Api(status) if status.is_not_found() => Self::NotFound,
            kube::Error::Api(status) if status.is_invalid() || status.code == 400 => {
                Self::Refused(status.message)
            }
            other => Self::Unavailable(Box::new(other)),
        }
    }
}
