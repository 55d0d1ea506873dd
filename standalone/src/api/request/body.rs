//! Request bodies: JSON, YAML and the protobuf messages of kubectl.

use serde_json::Value;

use crate::api::{error::ApiError, protobuf};

/// Decodes the object in a body.
pub(super) fn decode(content_type: &str, body: &[u8]) -> Result<Value, ApiError> {
    match content_type {
        "" | "application/json" => json_object(body),
        "application/yaml" => yaml_object(body),
        protobuf::MEDIA_TYPE => protobuf::decode(body),
        _ => Err(ApiError::UnsupportedMediaType(
            "application/json, application/yaml".to_owned(),
        )),
    }
}

/// Parses a JSON object.
pub(crate) fn json_object(body: &[u8]) -> Result<Value, ApiError> {
    let value = serde_json::from_slice(body).map_err(|error| {
        ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
    })?;
    object(value)
}

/// Parses a YAML or JSON object.
pub(crate) fn yaml_object(body: &[u8]) -> Result<Value, ApiError> {
    json_object(body).or_else(|_| {
        let value = serde_yaml::from_slice(body)
            .map_err(|error| ApiError::BadRequest(format!("error decoding YAML: {error}")))?;
        object(value)
    })
}

fn object(value: Value) -> Result<Value, ApiError> {
    if value.is_object() {
        return Ok(value);
    }
    Err(ApiError::BadRequest(
        "the body must be an object".to_owned(),
    ))
}
