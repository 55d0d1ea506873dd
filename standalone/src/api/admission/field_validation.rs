//! Validation of the fields of an object against its kind. Unknown fields are dropped; the client
//! chooses whether they are ignored, reported as warnings or rejected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::api::{
    error::ApiError,
    object::as_object,
    registry::{Kind, ObjectValidation},
    request::FieldValidation,
};

/// Maximum nesting. Patches could otherwise nest an object deeper than any parser accepts.
const MAX_DEPTH: usize = 100;

/// Drops unknown fields and returns the warnings.
pub(super) fn validate_fields(
    kind: &Kind,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    if !is_shallow(object, MAX_DEPTH) {
        return Err(ApiError::BadRequest(format!(
            "the object is nested more than {MAX_DEPTH} levels deep"
        )));
    }
    check_type_meta(kind, object)?;
    let mut unknown = match &kind.model {
        ObjectValidation::Typed(through) => {
            let known = through(object).map_err(|error| mismatch(kind, &error))?;
            unknown_fields(object, &known)
        }
        ObjectValidation::Schema(schema) => schema.prune(object),
    };
    if kind.is_custom() {
        unknown.extend(conform_metadata(kind, object)?);
    }
    let lines = unknown
        .into_iter()
        .map(|field| format!("unknown field \"{field}\""));
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(lines.collect()),
        FieldValidation::Strict => refuse_unknown(lines.collect()),
    }
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(fields) => {
            levels > 0 && fields.values().all(|child| is_shallow(child, levels - 1))
        }
        Value::Array(items) => {
            levels > 0 && items.iter().all(|child| is_shallow(child, levels - 1))
        }
        _ => true,
    }
}

fn refuse_unknown(lines: Vec<String>) -> Result<Vec<String>, ApiError> {
    if lines.is_empty() {
        Ok(lines)
    } else {
        Err(ApiError::BadRequest(format!(
            "strict decoding error: {}",
            lines.join(", ")
        )))
    }
}

fn check_type_meta(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let fields = as_object(object);
    for (field, expected) in [
        ("apiVersion", kind.api_version()),
        ("kind", kind.name.clone()),
    ] {
        let sent = fields.entry(field).or_insert_with(|| json!(expected));
        if *sent != expected.as_str() {
            let what = if field == "kind" {
                "kind"
            } else {
                "API version"
            };
            return Err(ApiError::BadRequest(format!(
                "the {what} in the data ({sent}) does not match the expected {what} ({expected})"
            )));
        }
    }
    Ok(())
}

/// Validates the metadata of a custom resource, which its schema does not contain.
fn conform_metadata(kind: &Kind, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let metadata = as_object(object)
        .entry("metadata")
        .or_insert_with(|| json!({}));
    let typed: ObjectMeta =
        serde_json::from_value(metadata.clone()).map_err(|error| mismatch(kind, &error))?;
    let known = serde_json::to_value(typed).map_err(|error| mismatch(kind, &error))?;
    Ok(unknown_fields(metadata, &known)
        .into_iter()
        .map(|field| format!("metadata.{field}"))
        .collect())
}

fn mismatch(kind: &Kind, error: &serde_json::Error) -> ApiError {
    let (name, version) = (&kind.name, &kind.version);
    ApiError::BadRequest(format!(
        "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
    ))
}

/// Removes the fields of `sent` that `known` lacks and returns their paths.
fn unknown_fields(sent: &mut Value, known: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    drop_unknown(sent, known, "", &mut unknown);
    unknown
}

fn drop_unknown(sent: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => sent.retain(|key, value| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let found = known.get(key);
            match found {
                Some(known) => drop_unknown(value, known, &path, unknown),
                None if is_empty_value(value) => {}
                None => unknown.push(path),
            }
            found.is_some()
        }),
        (Value::Array(sent), Value::Array(known)) => {
            for (index, (sent, known)) in sent.iter_mut().zip(known).enumerate() {
                drop_unknown(sent, known, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// True for null and empty values, which typed serialization may omit.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
