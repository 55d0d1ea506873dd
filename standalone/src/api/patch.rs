//! The four kinds of PATCH. Each turns the current object and a document into the next object; whether that object is
//! acceptable is somebody else's question.

mod apply;
mod lists;
mod strategic;

use json_patch::PatchOperation;
use serde_json::Value;

use super::{BODY_LIMIT, error::ApiError, registry::Kind};

/// A parsed patch.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Merge(Value),
    Json(json_patch::Patch),
    Strategic(Value),
    Apply(Value),
}

const ACCEPTED: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Patch {
    pub(crate) fn parse(content_type: &str, body: &[u8], kind: &Kind) -> Result<Self, ApiError> {
        match content_type {
            "application/merge-patch+json" => Ok(Self::Merge(json_object(body)?)),
            "application/json-patch+json" => Ok(Self::Json(
                serde_json::from_slice(body).map_err(|e| malformed(&e))?,
            )),
            "application/strategic-merge-patch+json" if !kind.is_custom() => {
                Ok(Self::Strategic(json_object(body)?))
            }
            "application/apply-patch+yaml" => Ok(Self::Apply(yaml_object(body)?)),
            _ => Err(ApiError::UnsupportedMediaType(ACCEPTED.to_owned())),
        }
    }

    pub(crate) fn is_apply(&self) -> bool {
        matches!(self, Self::Apply(_))
    }

    /// The next object. `manager` is who applies, for server-side apply.
    pub(crate) fn apply(
        &self,
        current: &Value,
        kind: &Kind,
        manager: &str,
    ) -> Result<Value, ApiError> {
        let mut next = current.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut next, patch),
            Self::Json(patch) => apply_operations(&mut next, patch)?,
            Self::Strategic(patch) => strategic::merge(&mut next, patch),
            Self::Apply(config) => apply::merge(&mut next, config, kind, manager),
        }
        Ok(next)
    }
}

/// Applies a JSON patch. Copies can double an object each time, so their result is measured before the next one.
fn apply_operations(object: &mut Value, patch: &json_patch::Patch) -> Result<(), ApiError> {
    let unfit = |error: json_patch::PatchError| ApiError::Unprocessable(error.to_string());
    let copies = |operation: &PatchOperation| matches!(operation, PatchOperation::Copy(_));
    if !patch.0.iter().any(copies) {
        return json_patch::patch(object, patch).map_err(unfit);
    }
    for operation in &patch.0 {
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(unfit)?;
        if copies(operation) && object.to_string().len() > BODY_LIMIT {
            return Err(ApiError::TooLarge(BODY_LIMIT));
        }
    }
    Ok(())
}

/// A JSON object, or what is wrong with the text.
pub(crate) fn json_object(body: &[u8]) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(ApiError::BadRequest(
            "the body must be a JSON object".to_owned(),
        ))
    }
}

/// An object in YAML, of which JSON is a part.
pub(crate) fn yaml_object(body: &[u8]) -> Result<Value, ApiError> {
    json_object(body).or_else(|_| {
        let value: Value = serde_yaml::from_slice(body)
            .map_err(|error| ApiError::BadRequest(format!("error decoding YAML: {error}")))?;
        if value.is_object() {
            Ok(value)
        } else {
            Err(ApiError::BadRequest(
                "the body must be an object".to_owned(),
            ))
        }
    })
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
}
