//! Error responses of the proxy (`docs/specs/runtime-api.md`, section 4.7). V0 clients take 404 as
//! "gone forever", 503 as "resume it" and 502 as "disconnected".

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, StatusCode};

use crate::api::ErrorBody;
use crate::outcome::OutcomeTag;

/// Reason why a request did not reach its sandbox.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    #[error("bad request: {0}")]
    BadRequest(&'static str),
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
}

impl ProxyError {
    /// Category for logs and metrics.
    pub fn category(self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad-request",
            Self::UnknownSandbox => "unknown-sandbox",
            Self::UnknownPort => "unknown-port",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::NotReady => "not-ready",
            Self::Failed => "failed",
            Self::HoldExpired => "hold-expired",
            Self::LookupFailed => "lookup-failed",
            Self::SandboxBusy => "busy",
            Self::TooManyHeld => "crowded",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::ConnectionBroken => "broken",
            Self::Malformed => "malformed",
            Self::PodGone => "went-away",
        }
    }

    /// True if the request may be sent again: it was not sent, or it is idempotent (RFC 9110,
    /// section 9.2.2).
    pub(super) fn is_retryable(self, method: &Method) -> bool {
        match self {
            Self::Unreachable => true,
            Self::ConnectionBroken | Self::PodGone => method.is_idempotent(),
            _ => false,
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::UnknownSandbox | Self::UnknownPort | Self::Stopped => StatusCode::NOT_FOUND,
            Self::Paused
            | Self::NotReady
            | Self::Failed
            | Self::HoldExpired
            | Self::LookupFailed
            | Self::SandboxBusy
            | Self::TooManyHeld
            | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::ConnectionBroken | Self::Malformed | Self::PodGone => {
                StatusCode::BAD_GATEWAY
            }
        }
    }
}

impl IntoResponse for ProxyError {
    fn into_response(self) -> Response {
        let status = self.status();
        let detail = self.to_string();
        let mut response = (status, Json(ErrorBody { detail })).into_response();
        response
            .extensions_mut()
            .insert(OutcomeTag(self.category()));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
