//! Reads JSON bodies: any content type, and every fault is a `detail`. It names the field and the
//! expected type, never the value: a value may be a secret, and clients log responses.

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Deserializer;
use serde_json::error::Category;
use serde_path_to_error::Path;
use tokio::time::timeout;

use super::ApiError;

/// Time for a body of at most 2 MiB to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of quoted characters of a field: clients choose the names in maps.
const MAX_FIELD_CHARS: usize = 64;
/// Text of serde before the expected type.
const EXPECTED: &str = ", expected ";
/// Type names of serde, and those for clients.
const TYPE_NAMES: [(&str, &str); 7] = [
    ("i64", "a whole number"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "an object"),
    ("a string", "text"),
];

/// Body of a request. An empty one counts as `{}`.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = timeout(BODY_TIMEOUT, Bytes::from_request(request, state))
            .await
            .map_err(|_| ApiError::bad_request("the body did not arrive in time"))?
            .map_err(|error| reject(&error))?;
        let json: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // serde would read an array as the fields of a structure.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(ApiError::bad_request("the body is not a JSON object"));
        }
        read(json).map(Self)
    }
}

fn reject(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::TooLarge
    } else {
        ApiError::bad_request("the body could not be read")
    }
}

/// Reads a body that is an object.
fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
    let mut source = Deserializer::from_slice(json);
    let read = serde_path_to_error::deserialize(&mut source);
    let read = read.map_err(|error| describe(error.path(), error.inner()))?;
    source.end().map_err(|error| malformed(&error))?;
    Ok(read)
}

fn describe(path: &Path, error: &serde_json::Error) -> ApiError {
    if error.classify() != Category::Data {
        return malformed(error);
    }
    let text = error.to_string();
    if let Some(name) = text.strip_prefix("missing field `") {
        let name = name.split('`').next().unwrap_or_default();
        return ApiError::bad_request(format!("{name} is required"));
    }
    if let Some(name) = text.strip_prefix("duplicate field `") {
        let name = name.split('`').next().unwrap_or_default();
        return ApiError::bad_request(format!("{name} is there twice"));
    }
    let field: String = path.to_string().chars().take(MAX_FIELD_CHARS).collect();
    match expected(&text) {
        Some(kind) => ApiError::bad_request(format!("{field} must be {kind}")),
        None => ApiError::bad_request(format!("{field} cannot be read")),
    }
}

/// Returns the expected type. Only the end of the text is fixed; the value may precede it.
fn expected(text: &str) -> Option<&str> {
    let (_, kind) = text.rsplit_once(EXPECTED)?;
    let kind = kind.rsplit_once(" at line ").map_or(kind, |(kind, _)| kind);
    let known = TYPE_NAMES.iter().find(|(name, _)| *name == kind);
    Some(known.map_or(kind, |(_, name)| name))
}

/// Reports a syntax error by its position only.
fn malformed(error: &serde_json::Error) -> ApiError {
    let (line, column) = (error.line(), error.column());
    ApiError::bad_request(format!(
        "the body is not valid JSON at line {line} column {column}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::start::StartRequest;
    use crate::warm_configs::ConfigRequest;

    fn fault<T: DeserializeOwned>(body: &str) -> String {
        match read::<T>(body.as_bytes()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn error_names_field_and_expected_type() {
        let secret = json!("SECRET, expected x");
        for (field, odd, said) in [
            ("image", json!(7), "text"),
            ("command", json!({"SECRET": 1}), "text or a list of texts"),
            ("command", json!(["a", 1]), "text or a list of texts"),
            ("environment", json!(["SECRET"]), "an object"),
            ("session_id", json!(7), "text"),
            ("resource_factor", secret.clone(), "a number"),
            ("run_as_user", secret, "a whole number"),
            ("run_as_user", json!(1e300), "a whole number"),
        ] {
            let body = json!({"a": 1, field: odd}).to_string();
            let expected = format!("{field} must be {said}");
            assert_eq!(fault::<StartRequest>(&body), expected, "{body}");
        }
    }

    #[test]
    fn error_names_path_in_nested_body() {
        for row in [
            r"{} -> image is required",
            r#"{"image": "i", "image": "j"} -> image is there twice"#,
            r#"{"image": "i", "environment": {"A": 1}} -> environment.A must be text"#,
            r#"{"image": "i", "command": ["a", {}]} -> command[1] must be text"#,
            r#"{"image": "i", "count": -1} -> count must be a whole number from 0 to 4294967295"#,
            r#"{"image": "i", "fuse_s3_mount": "SECRET"} -> fuse_s3_mount must be true or false"#,
        ] {
            let (body, said) = row.split_once(" -> ").unwrap();
            assert_eq!(fault::<ConfigRequest>(body), said, "{body}");
        }
        let name = "x".repeat(1000);
        let body = json!({"image": "i", "environment": {name: 1}}).to_string();
        let said = fault::<ConfigRequest>(&body);
        assert!(
            said.len() < 100 && said.ends_with("x must be text"),
            "{said}"
        );
    }

    #[test]
    fn malformed_json_error_names_position() {
        let said = "the body is not valid JSON at line 2 column 1";
        assert_eq!(fault::<StartRequest>("{\"image\": \"SECRET\"\n?}"), said);
        let said = "the body is not valid JSON at line 1 column 3";
        assert_eq!(fault::<StartRequest>("{}?"), said);
    }
}
