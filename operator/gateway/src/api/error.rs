//! Errors of the API: a status code and an object with the text `detail`.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin_auth::AdminError;
use crate::builds::BuildError;
use crate::events::TooManyStreams;
use crate::exec_limits::ExecLimitError;
use crate::logs::TooManyLogs;
use crate::sandbox_snapshots::SnapshotError;
use crate::sandboxes::SandboxError;
use crate::warm_configs::ConfigError;
use shared::tenants::TenantError;

/// Failure of a call to the API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Invalid request; a retry cannot succeed.
    #[error("{0}")]
    BadRequest(String),
    #[error(transparent)]
    ExecLimit(#[from] ExecLimitError),
    #[error("the request body is larger than 2 MiB")]
    TooLarge,
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error("no runtime with this id")]
    UnknownRuntime,
    #[error("no runtime for this session")]
    UnknownSession,
    #[error("no such path")]
    UnknownPath,
    #[error("method not allowed for this path")]
    WrongMethod,
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("cannot encrypt the environment")]
    Seal,
    #[error("too many queued starts for this API key; retry after other sandboxes have stopped")]
    QueueFull,
    #[error("this API key has {max} sandboxes, paused ones included; stop some and retry")]
    TooManySandboxes { max: u32 },
    #[error(
        "commands and environments of the sandboxes of this API key exceed {} MiB, paused ones \
         included; stop some and retry",
        max >> 20
    )]
    LargeSandboxes { max: usize },
    #[error("{0}; retry later")]
    PoolExhausted(String),
    #[error("image builds are not supported: set runtime_container_image to an existing image")]
    NoBuilder,
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("no such build")]
    UnknownBuild,
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Events(#[from] TooManyStreams),
    #[error(transparent)]
    Logs(#[from] TooManyLogs),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    WarmConfig(#[from] ConfigError),
    #[error("internal error")]
    Panicked,
}

/// Body of every error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct ErrorBody {
    detail: String,
}

/// Outcome of a request as a label of metrics and of the access log, an extension of responses that
/// the gateway makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutcomeTag(pub(crate) &'static str);

/// Builds the response of an error. 503 suggests a retry.
pub(crate) fn error_response(status: StatusCode, error: &dyn std::error::Error) -> Response {
    let detail = error.to_string();
    let mut response = (status, Json(ErrorBody { detail })).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let second = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, second);
    }
    response
}

impl ApiError {
    /// Creates an error for an invalid request.
    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::BadRequest(text.into())
    }

    /// Returns the status code, and the error category: a fixed label for logs and metrics.
    pub(super) fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) | Self::ExecLimit(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            Self::Tenant(error) => match error {
                TenantError::Unknown | TenantError::Expired => {
                    (StatusCode::UNAUTHORIZED, error.category())
                }
                _ => (StatusCode::SERVICE_UNAVAILABLE, error.category()),
            },
            Self::UnknownRuntime => (StatusCode::NOT_FOUND, "unknown-runtime"),
            Self::UnknownSession => (StatusCode::NOT_FOUND, "unknown-session"),
            Self::UnknownPath => (StatusCode::NOT_FOUND, "unknown-path"),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "wrong-method"),
            Self::Sandbox(error) => match error {
                SandboxError::NotFound => (StatusCode::NOT_FOUND, error.category()),
                error => (cluster_status(error), error.category()),
            },
            Self::Seal => (StatusCode::INTERNAL_SERVER_ERROR, "seal"),
            Self::PoolExhausted(_) => (StatusCode::SERVICE_UNAVAILABLE, "pool-exhausted"),
            Self::QueueFull => (StatusCode::SERVICE_UNAVAILABLE, "queue-full"),
            Self::TooManySandboxes { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "too-many-sandboxes")
            }
            Self::LargeSandboxes { .. } => (StatusCode::SERVICE_UNAVAILABLE, "large-sandboxes"),
            Self::NoBuilder => (StatusCode::NOT_IMPLEMENTED, "no-builder"),
            Self::Build(error) => error.kind(),
            Self::UnknownBuild => (StatusCode::NOT_FOUND, "unknown-build"),
            Self::Snapshot(error) => error.kind(),
            Self::Events(_) => (StatusCode::TOO_MANY_REQUESTS, "too-many-streams"),
            Self::Logs(_) => (StatusCode::TOO_MANY_REQUESTS, "too-many-logs"),
            Self::Admin(error) => error.kind(),
            Self::WarmConfig(error) => match error {
                ConfigError::NotStored => (StatusCode::NOT_FOUND, "config"),
                ConfigError::Cluster(error) => (cluster_status(error), "config"),
                ConfigError::Invalid(_) | ConfigError::ExecLimit(_) => {
                    (StatusCode::BAD_REQUEST, "config")
                }
            },
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "panicked"),
        }
    }
}

fn cluster_status(error: &SandboxError) -> StatusCode {
    match error {
        SandboxError::Refused(_) | SandboxError::TooLarge => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, category) = self.kind();
        let expected = matches!(
            self,
            Self::NoBuilder
                | Self::QueueFull
                | Self::TooManySandboxes { .. }
                | Self::LargeSandboxes { .. }
                | Self::Admin(AdminError::Busy)
        );
        if status.is_server_error() && !expected {
            let source = std::error::Error::source(&self).map(ToString::to_string);
            tracing::warn!(category, source, "{self}");
        }
        error_response(status, &self)
    }
}

impl From<PathRejection> for ApiError {
    fn from(_: PathRejection) -> Self {
        Self::bad_request("the path is malformed")
    }
}

impl From<QueryRejection> for ApiError {
    fn from(_: QueryRejection) -> Self {
        Self::bad_request("the query is malformed")
    }
}
