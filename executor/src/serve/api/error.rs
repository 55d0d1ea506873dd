//! Error bodies in the form of the Python server.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use crate::serve::executor::ExecuteError;
use crate::serve::transfer::TransferError;

/// `{"detail": …}`
pub(super) fn detail(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({"detail": text}))).into_response()
}

/// Response to an exception that the Python server does not handle.
pub(super) fn unexpected() -> Response {
    detail(
        StatusCode::INTERNAL_SERVER_ERROR,
        "An unexpected error occurred. Please try again later.",
    )
}

impl IntoResponse for TransferError {
    fn into_response(self) -> Response {
        detail(StatusCode::INTERNAL_SERVER_ERROR, &self.to_string())
    }
}

impl IntoResponse for ExecuteError {
    fn into_response(self) -> Response {
        let text = format!("Internal server error: {self}");
        detail(StatusCode::INTERNAL_SERVER_ERROR, &text)
    }
}
