//! Errors of calls to the API server, with texts for clients of the gateway.

use kube::core::Status;
use shared::kubernetes::api_messages::is_object_too_large;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("no such runtime")]
    NotFound,
    #[error("an object of this name already exists")]
    Exists,
    /// The API server rejects the content; its message is meant for the client.
    #[error("{0}")]
    Refused(String),
    #[error(
        "the sandbox exceeds the size limit of the Kubernetes API: reduce command or environment"
    )]
    TooLarge,
    /// Quota, admission webhook or gateway permissions. It may pass, but not within one call.
    #[error("the cluster does not allow this: {0}")]
    Forbidden(String),
    #[error("the Kubernetes API is unavailable; try again")]
    Unavailable(#[source] Box<kube::Error>),
    #[error("the Kubernetes API did not answer in time; try again")]
    Timeout,
    #[error("the gateway has not listed all sandboxes yet; try again")]
    NotSynced,
    /// The index lacks the object, and a live lookup was not possible.
    #[error("the Kubernetes API is not available for this lookup; try again")]
    LookupUnavailable,
    #[error("the Kubernetes API answered an object without uid")]
    Incomplete,
}

impl SandboxError {
    /// Returns the error category, a fixed label for logs and metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::Refused(_) => "refused",
            Self::TooLarge => "too-large",
            Self::Forbidden(_) => "forbidden",
            Self::Unavailable(_) => "unavailable",
            Self::Timeout => "timeout",
            Self::NotSynced => "not-synced",
            Self::LookupUnavailable => "unsure",
            Self::Incomplete => "incomplete",
        }
    }

    /// Returns whether the API server did not answer.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Timeout)
    }

    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Start of a Kubernetes message whose rest, the account of the gateway, clients must not see.
const NO_PERMISSION: &str = "User \"";

impl From<kube::Error> for SandboxError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_already_exists() => Self::Exists,
            kube::Error::Api(status) if status.is_not_found() => Self::NotFound,
            kube::Error::Api(status) if is_too_large(&status) => Self::TooLarge,
            kube::Error::Api(status) if status.code == 403 => {
                Self::Forbidden(reason(&status.message))
            }
            kube::Error::Api(status) if status.is_invalid() || status.code == 400 => {
                Self::Refused(status.message)
            }
            other => Self::Unavailable(Box::new(other)),
        }
    }
}

fn is_too_large(status: &Status) -> bool {
    status.code == 413 || is_object_too_large(&status.message)
}

/// Extracts the reason from a message, without the object.
fn reason(message: &str) -> String {
    let reason = message
        .split_once("is forbidden: ")
        .map_or(message, |m| m.1);
    if reason.starts_with(NO_PERMISSION) {
        return "the gateway lacks the permission".into();
    }
    reason.to_owned()
}
