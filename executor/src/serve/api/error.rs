//! Error bodies in the form of the Python server.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use crate::serve::executor::ExecuteError;
use crate::serve::python_repr::repr;
use crate::serve::transfer::TransferError;

/// `{"detail": …}`
pub(super) fn detail(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({"detail": text}))).into_response()
}

/// Reason for a 422: the request body does not contain an action object.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(
        "{{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {{}}, 'ctx': {{'error': 'Expecting value'}}}}"
    )]
    Json,
    #[error("{{'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}}")]
    Empty,
    #[error("{{'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': {input}}}", input = repr(.0))]
    NoObject(Value),
    #[error("{{'type': 'missing', 'loc': ('body', 'action'), 'msg': 'Field required', 'input': {input}}}", input = repr(.0))]
    NoAction(Value),
    #[error("{{'type': 'dict_type', 'loc': ('body', 'action'), 'msg': 'Input should be a valid dictionary', 'input': {input}}}", input = repr(.0))]
    ActionType(Value),
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let body = json!({
            "detail": "Invalid request parameters",
            "errors": format!("[{self}]"),
        });
        (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_errors_use_python_syntax() {
        assert_eq!(
            BodyError::NoAction(json!({})).to_string(),
            "{'type': 'missing', 'loc': ('body', 'action'), 'msg': 'Field required', 'input': {}}"
        );
        assert_eq!(
            BodyError::ActionType(json!("x")).to_string(),
            "{'type': 'dict_type', 'loc': ('body', 'action'), \
             'msg': 'Input should be a valid dictionary', 'input': 'x'}"
        );
    }
}
