//! Validation errors of queries and forms in pydantic's format (`docs/specs/executor.md`, section
//! 1.7).

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::{Value, json};

use crate::serve::python_repr::repr;

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

pub(super) fn missing(place: &str, name: &str) -> String {
    format!(
        "{{'type': 'missing', 'loc': ('{place}', '{name}'), 'msg': 'Field required', 'input': None}}"
    )
}

/// Parses a boolean as pydantic does.
pub(super) fn flag(query: &Query, name: &str) -> Result<bool, String> {
    let Some(value) = last(query, name) else {
        return Ok(false);
    };
    match value.to_lowercase().as_str() {
        "1" | "on" | "t" | "true" | "y" | "yes" => Ok(true),
        "0" | "off" | "f" | "false" | "n" | "no" => Ok(false),
        _ => Err(format!(
            "{{'type': 'bool_parsing', 'loc': ('query', '{name}'), 'msg': 'Input should be a valid \
             boolean, unable to interpret input', 'input': {}}}",
            repr(&Value::String(value.to_owned()))
        )),
    }
}
