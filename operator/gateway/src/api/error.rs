//! Errors of the API: a status code and an object with the text `detail`.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin_auth::AdminError;
use crate::exec_limits::ExecLimitError;
use crate::sandboxes::SandboxError;
use crate::warm_configs::ConfigError;
use shared::tenants::TenantError;

/// Failure of a call to the API.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
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
    #[error("image builds are not supported: set runtime_container_image to an existing image")]
    NoBuilder,
    #[error("no such build")]
    UnknownBuild,
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
pub(crate) struct ErrorBody {
    pub(crate) detail: String,
}

impl ApiError {
    /// Creates an error for an invalid request.
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::BadRequest(text.into())
    }

    /// Returns the error category, a fixed label for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::BadRequest(_) | Self::ExecLimit(_) => "bad-request",
            Self::TooLarge => "too-large",
            Self::Tenant(error) => error.category(),
            Self::UnknownRuntime => "unknown-runtime",
            Self::UnknownSession => "unknown-session",
            Self::UnknownPath => "unknown-path",
            Self::WrongMethod => "wrong-method",
            Self::Sandbox(error) => error.category(),
            Self::Seal => "seal",
            Self::QueueFull => "queue-full",
            Self::NoBuilder => "no-builder",
            Self::UnknownBuild => "unknown-build",
            Self::Admin(error) => error.category(),
            Self::WarmConfig(_) => "config",
            Self::Panicked => "panicked",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_)
            | Self::ExecLimit(_)
            | Self::Sandbox(SandboxError::Refused(_) | SandboxError::TooLarge)
            | Self::Admin(AdminError::Challenge)
            | Self::WarmConfig(
                ConfigError::Invalid(_)
                | ConfigError::ExecLimit(_)
                | ConfigError::Cluster(SandboxError::Refused(_) | SandboxError::TooLarge),
            ) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Tenant(TenantError::Unknown | TenantError::Expired)
            | Self::Admin(AdminError::Password | AdminError::Token) => StatusCode::UNAUTHORIZED,
            Self::Admin(AdminError::Disabled) => StatusCode::FORBIDDEN,
            Self::UnknownRuntime
            | Self::UnknownSession
            | Self::UnknownPath
            | Self::UnknownBuild
            | Self::WarmConfig(ConfigError::NotStored)
            | Self::Sandbox(SandboxError::NotFound) => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoBuilder => StatusCode::NOT_IMPLEMENTED,
            Self::Seal | Self::Panicked | Self::Admin(AdminError::Random) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Tenant(_)
            | Self::Sandbox(_)
            | Self::WarmConfig(_)
            | Self::Admin(AdminError::Busy)
            | Self::QueueFull => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let expected = matches!(
            self,
            Self::NoBuilder | Self::QueueFull | Self::Admin(AdminError::Busy)
        );
        if status.is_server_error() && !expected {
            let source = std::error::Error::source(&self).map(ToString::to_string);
            tracing::warn!(category = self.category(), source, "{self}");
        }
        let detail = self.to_string();
        let mut response = (status, Json(ErrorBody { detail })).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
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
