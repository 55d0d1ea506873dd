//! What can go wrong between the gateway and the API server, in the words of the gateway.

use kube::core::Status;

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
    #[error(
        "the sandbox is larger than the Kubernetes API can store: send a smaller command or environment"
    )]
    TooLarge,
    /// A quota, an admission webhook or the permissions of the gateway. It may pass, but not within
    /// one call.
    #[error("the cluster does not allow this: {0}")]
    Forbidden(String),
    #[error("the Kubernetes API is unavailable; try again")]
    Unavailable(#[source] Box<kube::Error>),
    #[error("the Kubernetes API did not answer in time; try again")]
    Timeout,
    #[error("the gateway does not know all sandboxes yet; try again")]
    NotSynced,
    /// Nothing of this name is known, and nobody could be asked.
    #[error("the Kubernetes API cannot be asked for this at present; try again")]
    Unsure,
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
            Self::TooLarge => "too-large",
            Self::Forbidden(_) => "forbidden",
            Self::Unavailable(_) => "unavailable",
            Self::Timeout => "timeout",
            Self::NotSynced => "not-synced",
            Self::Unsure => "unsure",
            Self::Incomplete => "incomplete",
        }
    }

    /// Whether nobody could be asked.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Timeout)
    }

    /// Whether the same call may succeed in a moment.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Refusals of etcd, and of the API server's client of it, come without a status code of their own.
const TOO_LARGE: [&str; 2] = [
    "request is too large",
    "trying to send message larger than max",
];
/// How Kubernetes begins a refusal by permissions. It goes on with the account of the gateway, which
/// is no business of a client.
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
    status.code == 413 || TOO_LARGE.iter().any(|text| status.message.contains(text))
}

/// Why something is forbidden, without the object that the gateway wanted.
fn reason(message: &str) -> String {
    let reason = message
        .split_once("is forbidden: ")
        .map_or(message, |m| m.1);
    if reason.starts_with(NO_PERMISSION) {
        return "the gateway lacks the permission".into();
    }
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, message: &str) -> SandboxError {
        let status = Status::failure(message, "Any").with_code(code);
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn what_is_too_large_is_no_outage() {
        for (code, message) in [
            (413, "limit is 3145728"),
            (500, "etcdserver: request is too large"),
            (
                500,
                "rpc error: trying to send message larger than max (2 vs. 1)",
            ),
        ] {
            let error = error(code, message);
            assert!(matches!(error, SandboxError::TooLarge), "{message}");
            assert!(!error.is_transient());
        }
        assert!(error(500, "internal error").is_transient());
    }

    #[test]
    fn what_is_forbidden_says_why_and_not_who_the_gateway_is() {
        for (message, said) in [
            (
                "sandboxes \"x\" is forbidden: exceeded quota: count",
                "exceeded quota: count",
            ),
            (
                "admission webhook \"w\" denied the request: no",
                "admission webhook \"w\" denied the request: no",
            ),
            (
                "sandboxes is forbidden: User \"system:serviceaccount:ns:gateway\" cannot create",
                "the gateway lacks the permission",
            ),
        ] {
            let error = error(403, message);
            assert!(!error.is_transient());
            let expected = format!("the cluster does not allow this: {said}");
            assert_eq!(error.to_string(), expected);
        }
    }
}
