//! Error bodies in the form of the Python server, and validation errors of queries and bodies in
//! pydantic's format (`docs/specs/executor.md`, section 1.7).

use axum::Json;
use axum::response::{IntoResponse, Response};
use browser::python_repr::repr;
use http::StatusCode;
use serde_json::{Value, json};

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

/// Query parameters in their original order.
pub(super) type Query = axum::extract::Query<Vec<(String, String)>>;

/// Returns the value of a parameter; the last one if it is repeated.
pub(super) fn last<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    let found = query.0.iter().rev().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// Response 422 with all errors.
pub(super) fn invalid(errors: &[String]) -> Response {
    let body = json!({
        "detail": "Invalid request parameters",
        "errors": format!("[{}]", errors.join(", ")),
    });
    (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
}

/// One error. `location` is the content of a Python tuple.
pub(super) fn issue(kind: &str, location: &str, message: &str, input: &Value) -> String {
    let input = repr(input);
    format!("{{'type': '{kind}', 'loc': ({location}), 'msg': '{message}', 'input': {input}}}")
}

pub(super) fn missing(location: &str) -> String {
    issue("missing", location, "Field required", &Value::Null)
}

/// Parses a boolean as pydantic does.
pub(super) fn flag(query: &Query, name: &str) -> Result<bool, String> {
    let Some(value) = last(query, name) else {
        return Ok(false);
    };
    match value.to_lowercase().as_str() {
        "1" | "on" | "t" | "true" | "y" | "yes" => Ok(true),
        "0" | "off" | "f" | "false" | "n" | "no" => Ok(false),
        _ => Err(issue(
            "bool_parsing",
            &format!("'query', '{name}'"),
            "Input should be a valid boolean, unable to interpret input",
            &Value::from(value),
        )),
    }
}
