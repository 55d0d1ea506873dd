//! Does the object have the form of its kind? Unknown fields are dropped and, as the client asked, ignored, warned
//! about or refused.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::api::{
    error::ApiError,
    object::as_object,
    registry::{Kind, Model},
    request::FieldValidation,
};

/// Patches could nest an object deeper, step by step, than any reader (the next start included) would follow.
const DEEPEST: usize = 100;

/// Drops what the kind does not know; returns warnings.
pub(super) fn conform(
    kind: &Kind,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    if !is_shallow(object, DEEPEST) {
        return Err(ApiError::BadRequest(format!(
            "the object is nested more than {DEEPEST} levels deep"
        )));
    }
    check_type_meta(kind, object)?;
    let mut unknown = match &kind.model {
        Model::Typed(through) => {
            let known = through(object).map_err(|error| mismatch(kind, &error))?;
            unknown_fields(object, &known)
        }
        Model::Schema(schema) => schema.prune(object),
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

/// The metadata of a custom resource is not in its schema but has a form all the same.
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

/// Removes from `sent` what did not survive the way through the Rust type, and names it.
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
                None if is_hollow(value) => {}
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

/// Null and empty values say nothing, and types leave some of them out.
fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
