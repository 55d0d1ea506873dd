//! Error responses of the proxy (`docs/specs/runtime-api.md`, section 4.7). V0 clients take 404 as
//! "gone forever", 503 as "resume it" and 502 as "disconnected".

use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};

use crate::api::{OutcomeTag, error_response};

/// Reason why a request did not reach its sandbox.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyError {
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    #[error("method not allowed for this path")]
    WrongMethod,
    #[error("no sandbox with this id")]
    UnknownSandbox,
    #[error("this sandbox has no port of this name")]
    UnknownPort,
    #[error("sandbox is stopped")]
    Stopped,
    #[error("sandbox is paused")]
    Paused,
    #[error("sandbox is not ready yet")]
    NotReady,
    #[error("sandbox has failed")]
    Failed,
    #[error("sandbox did not come back in time")]
    HoldExpired,
    #[error("the sandbox cannot be looked up at the moment")]
    LookupFailed,
    #[error("too many concurrent requests to this sandbox")]
    SandboxBusy,
    #[error("too many held requests")]
    TooManyHeld,
    /// The memory of clients or the connections to sandboxes are used up.
    #[error("the gateway is overloaded")]
    Overloaded,
    /// No byte was sent.
    #[error("connection refused by this port of the sandbox")]
    Unreachable,
    /// Before the response head: the effect of the request is unknown.
    #[error("connection to the sandbox was lost")]
    ConnectionBroken,
    #[error("the response of the sandbox is not HTTP")]
    Malformed,
    #[error("the Pod was deleted during the request")]
    PodGone,
    /// The effect of the request is unknown: its program may go on with a resume.
    #[error("the sandbox was paused during the request")]
    PausedMeanwhile,
}

impl ProxyError {
    /// Status code, and category for logs and metrics.
    pub(super) fn kind(self) -> (StatusCode, &'static str) {
        const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "client-error"),
            Self::UnknownSandbox => (StatusCode::NOT_FOUND, "unknown-sandbox"),
            Self::UnknownPort => (StatusCode::NOT_FOUND, "unknown-port"),
            Self::Stopped => (StatusCode::NOT_FOUND, "stopped"),
            Self::Paused => (UNAVAILABLE, "paused"),
            Self::NotReady => (UNAVAILABLE, "not-ready"),
            Self::Failed => (UNAVAILABLE, "failed"),
            Self::HoldExpired => (UNAVAILABLE, "hold-expired"),
            Self::LookupFailed => (UNAVAILABLE, "lookup-failed"),
            Self::SandboxBusy => (UNAVAILABLE, "busy"),
            Self::TooManyHeld => (UNAVAILABLE, "crowded"),
            Self::Overloaded => (UNAVAILABLE, "overloaded"),
            Self::Unreachable => (StatusCode::BAD_GATEWAY, "unreachable"),
            Self::ConnectionBroken => (StatusCode::BAD_GATEWAY, "broken"),
            Self::Malformed => (StatusCode::BAD_GATEWAY, "malformed"),
            Self::PodGone => (StatusCode::BAD_GATEWAY, "went-away"),
            Self::PausedMeanwhile => (StatusCode::BAD_GATEWAY, "paused-meanwhile"),
        }
    }

    /// True for a request that was not sent or is idempotent (RFC 9110, section 9.2.2).
    pub(super) fn is_retryable(self, method: &Method) -> bool {
        match self {
            Self::Unreachable => true,
            Self::ConnectionBroken | Self::PodGone => method.is_idempotent(),
            _ => false,
        }
    }
}

impl IntoResponse for ProxyError {
    fn into_response(self) -> Response {
        let (status, category) = self.kind();
        let mut response = error_response(status, &self);
        response.extensions_mut().insert(OutcomeTag(category));
        response
    }
}
