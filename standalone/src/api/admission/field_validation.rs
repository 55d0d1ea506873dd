//! Validation of the fields of an object against its kind. Unknown fields are dropped; the client
//! chooses whether they are ignored, reported as warnings or rejected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::api::{
    error::ApiError,
    object::as_object,
    registry::{Kind, ObjectValidation},
    request::FieldValidation,
    schema::join_path,
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
    let mut unknown = Vec::new();
    match &kind.model {
        ObjectValidation::Typed(through_type) => {
            let known = through_type(object).map_err(|error| mismatch(kind, &error))?;
            drop_unknown(object, &known, "", &mut unknown);
        }
        ObjectValidation::Schema(schema) => {
            schema.prune(object, &mut unknown);
            // A schema does not contain the metadata.
            let metadata = as_object(object)
                .entry("metadata")
                .or_insert_with(|| json!({}));
            let typed = ObjectMeta::deserialize(&*metadata).and_then(serde_json::to_value);
            let known = typed.map_err(|error| mismatch(kind, &error))?;
            drop_unknown(metadata, &known, "metadata", &mut unknown);
        }
    }
    let lines = unknown
        .iter()
        .map(|field| format!("unknown field \"{field}\""));
    let lines: Vec<_> = lines.collect();
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !lines.is_empty() => {
            let lines = lines.join(", ");
            Err(ApiError::BadRequest(format!(
                "strict decoding error: {lines}"
            )))
        }
        FieldValidation::Warn | FieldValidation::Strict => Ok(lines),
    }
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    let is_child_shallow = |child| levels > 0 && is_shallow(child, levels - 1);
    match value {
        Value::Object(fields) => fields.values().all(is_child_shallow),
        Value::Array(items) => items.iter().all(is_child_shallow),
        _ => true,
    }
}

fn check_type_meta(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let fields = as_object(object);
    for (field, what, expected) in [
        ("apiVersion", "API version", kind.api_version()),
        ("kind", "kind", kind.name.clone()),
    ] {
        let sent = fields.entry(field).or_insert_with(|| json!(expected));
        if *sent != expected.as_str() {
            return Err(ApiError::BadRequest(format!(
                "the {what} in the data ({sent}) does not match the expected {what} ({expected})"
            )));
        }
    }
    Ok(())
}

fn mismatch(kind: &Kind, error: &serde_json::Error) -> ApiError {
    let (name, version) = (&kind.name, &kind.version);
    ApiError::BadRequest(format!(
        "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
    ))
}

/// Removes the fields of `sent` that `known` lacks and collects their paths.
fn drop_unknown(sent: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => sent.retain(|key, value| {
            let path = join_path(path, key);
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
