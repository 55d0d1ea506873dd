//! What the proxy itself answers (runtime API spec 4.7). V0 clients take 404 for "gone for ever",
//! 503 for "please resume", and 502 for "disconnected", so these are chosen with care.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, StatusCode};

use crate::gateway::api::ErrorBody;
use crate::gateway::observe::Outcome;

/// Why a request did not get through to a sandbox.
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
    #[error("sandbox cannot be looked up at the moment")]
    LookupFailed,
    #[error("sandbox has too many requests under way")]
    Busy,
    #[error("too many requests wait for their sandboxes")]
    Crowded,
    /// Nothing was sent.
    #[error("nothing accepts connections on this port of the sandbox")]
    Unreachable,
    /// Before the head of an answer: nobody knows what was done.
    #[error("connection to the sandbox broke")]
    Broken,
    #[error("what the sandbox answered is not HTTP")]
    Malformed,
    #[error("sandbox went away during the request")]
    WentAway,
}

impl ProxyError {
    /// Fixed name of the case, for logs and metrics.
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
            Self::Busy => "busy",
            Self::Crowded => "crowded",
            Self::Unreachable => "unreachable",
            Self::Broken => "broken",
            Self::Malformed => "malformed",
            Self::WentAway => "went-away",
        }
    }

    /// Whether the request may be sent again: it was not sent, or to do it twice is to do it once
    /// (RFC 9110 9.2.2).
    pub(super) fn allows_another(self, method: &Method) -> bool {
        match self {
            Self::Unreachable => true,
            Self::Broken | Self::WentAway => method.is_idempotent(),
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
            | Self::Busy
            | Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::Broken | Self::Malformed | Self::WentAway => {
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
        response.extensions_mut().insert(Outcome(self.category()));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
