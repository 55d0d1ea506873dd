//! Errors of image builds. Those that are the client's fault have texts for its user.

use http::StatusCode;

use super::context::ContextError;
use super::registries::QuestionError;
use crate::sandboxes::SandboxError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("the request is not a form: {0}")]
    Form(String),
    #[error("the form exceeds {} MiB", super::MAX_FORM_BYTES >> 20)]
    TooLarge,
    #[error("the form lacks {0}")]
    Missing(&'static str),
    #[error("the form has {part} in the wrong place: its parts are context, target_image and tags")]
    Order { part: &'static str },
    #[error("{part} exceeds {max} bytes")]
    LongText { part: &'static str, max: usize },
    #[error("the form has more than {max} tags")]
    ManyTags { max: usize },
    #[error("the context is not usable: {0}")]
    Context(#[from] ContextError),
    #[error("{0:?} is not an image reference with a tag")]
    IllegalTarget(String),
    #[error("{reference} is not in the repository {prefix}/runtime of this API key")]
    ForeignReference { reference: String, prefix: String },
    #[error("{0} is the name of another image already")]
    Taken(String),
    #[error("too many images are being made; try again")]
    Busy,
    #[error("the form did not arrive within {} s", super::UPLOAD_TIMEOUT.as_secs())]
    Timeout,
    #[error("this API key has {max} image builds; those that are not used for 14 days are deleted")]
    TooMany { max: usize },
    #[error("too many logs are being read; try again")]
    ManyLogs,
    #[error("the gateway has not listed all image builds yet; try again")]
    NotSynced,
    #[error("the registry of runtime images: {0}")]
    Registry(QuestionError),
    #[error(transparent)]
    Cluster(#[from] SandboxError),
    #[error("cannot read the context: internal error")]
    Panicked,
}

impl BuildError {
    /// Returns the status code, and the error category: a fixed label for logs and metrics.
    pub(crate) fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            Self::Taken(_) => (StatusCode::CONFLICT, "taken"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::ManyLogs => (StatusCode::SERVICE_UNAVAILABLE, "many-logs"),
            Self::NotSynced => (StatusCode::SERVICE_UNAVAILABLE, "not-synced"),
            Self::Cluster(SandboxError::Refused(_)) => (StatusCode::BAD_REQUEST, "refused"),
            Self::Cluster(error) => (StatusCode::SERVICE_UNAVAILABLE, error.category()),
            Self::Registry(error) if error.is_denied() => {
                (StatusCode::INTERNAL_SERVER_ERROR, "registry-denied")
            }
            Self::Registry(_) => (StatusCode::SERVICE_UNAVAILABLE, "registry"),
            Self::Context(ContextError::Disk(_)) => (StatusCode::INTERNAL_SERVER_ERROR, "disk"),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "panicked"),
            _ => (StatusCode::BAD_REQUEST, "bad-build"),
        }
    }
}
