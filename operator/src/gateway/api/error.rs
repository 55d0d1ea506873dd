//! Errors of the API as clients see them: a status and an object with the text `detail`.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::gateway::admin::AdminError;
use crate::gateway::configs::ConfigError;
use crate::gateway::impossible::Impossible;
use crate::gateway::sandboxes::SandboxError;
use crate::tenants::TenantError;

/// Why a call to the API failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The client sent something that no retry makes right.
    #[error("{0}")]
    BadRequest(String),
    #[error(transparent)]
    Impossible(#[from] Impossible),
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
    #[error("this path does not take this method")]
    WrongMethod,
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the environment cannot be sealed")]
    Seal,
    #[error(
        "too many sandboxes of this API key wait for their turn; try again when some have ended"
    )]
    QueueFull,
    #[error("this server builds no images: set runtime_container_image to one that exists")]
    NoBuilder,
    #[error("no such build")]
    UnknownBuild,
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("internal error")]
    Panicked,
}

/// Body of every error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(in crate::gateway) struct ErrorBody {
    pub(in crate::gateway) detail: String,
}

impl ApiError {
    /// A fault of the client.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::BadRequest(text.into())
    }

    /// Fixed name of the case, for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::BadRequest(_) | Self::Impossible(_) => "bad-request",
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
            Self::Admin(_) => "admin",
            Self::Config(_) => "config",
            Self::Panicked => "panicked",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_)
            | Self::Impossible(_)
            | Self::Sandbox(SandboxError::Refused(_) | SandboxError::TooLarge)
            | Self::Admin(AdminError::Challenge)
            | Self::Config(
                ConfigError::Invalid(_)
                | ConfigError::Impossible(_)
                | ConfigError::Cluster(SandboxError::Refused(_) | SandboxError::TooLarge),
            ) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Tenant(TenantError::Unknown)
            | Self::Admin(AdminError::Password | AdminError::Token) => StatusCode::UNAUTHORIZED,
            Self::Admin(AdminError::Disabled) => StatusCode::FORBIDDEN,
            Self::UnknownRuntime
            | Self::UnknownSession
            | Self::UnknownPath
            | Self::UnknownBuild
            | Self::Config(ConfigError::NotStored)
            | Self::Sandbox(SandboxError::NotFound) => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoBuilder => StatusCode::NOT_IMPLEMENTED,
            Self::Seal | Self::Panicked | Self::Admin(AdminError::Random) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Tenant(_)
            | Self::Sandbox(_)
            | Self::Config(_)
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
        Self::bad("the path is malformed")
    }
}

impl From<QueryRejection> for ApiError {
    fn from(_: QueryRejection) -> Self {
        Self::bad("the query is malformed")
    }
}
