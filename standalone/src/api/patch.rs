//! The four PATCH types. Each computes the next object from the current one and a document;
//! validation follows in [`super::admission`].

mod list_merge;
mod server_side_apply;
mod strategic;

use json_patch::PatchOperation;
use serde_json::Value;

use super::{
    MAX_BODY_BYTES,
    error::ApiError,
    registry::Kind,
    request::{json_object, unrecognized, yaml_object},
};

#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Merge(Value),
    Json(json_patch::Patch),
    Strategic(Value),
    Apply(Value),
}

/// Client of server-side apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applier {
    pub(crate) manager: String,
    /// Takes over conflicting fields instead of failing.
    pub(crate) force: bool,
}

const ACCEPTED: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Patch {
    pub(crate) fn parse(content_type: &str, body: &[u8], kind: &Kind) -> Result<Self, ApiError> {
        match content_type {
            "application/merge-patch+json" => Ok(Self::Merge(json_object(body)?)),
            "application/json-patch+json" => {
                let patch = serde_json::from_slice(body);
                Ok(Self::Json(patch.map_err(|error| unrecognized(&error))?))
            }
            "application/strategic-merge-patch+json" if kind.schema().is_none() => {
                Ok(Self::Strategic(json_object(body)?))
            }
            "application/apply-patch+yaml" => Ok(Self::Apply(yaml_object(body)?)),
            _ => Err(ApiError::UnsupportedMediaType(ACCEPTED.to_owned())),
        }
    }

    /// Computes the next object.
    pub(crate) fn apply(
        &self,
        current: &Value,
        kind: &Kind,
        applier: &Applier,
    ) -> Result<Value, ApiError> {
        let mut next = current.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut next, patch),
            Self::Json(patch) => apply_operations(&mut next, patch)?,
            Self::Strategic(patch) => strategic::merge(&mut next, patch),
            Self::Apply(config) => server_side_apply::merge(&mut next, config, kind, applier)?,
        }
        Ok(next)
    }
}

/// Applies a JSON patch. The size is checked after each copy, because copies can double an object.
fn apply_operations(object: &mut Value, patch: &json_patch::Patch) -> Result<(), ApiError> {
    let mismatch = |error: json_patch::PatchError| ApiError::Unprocessable(error.to_string());
    let copies = |operation: &PatchOperation| matches!(operation, PatchOperation::Copy(_));
    if !patch.0.iter().any(copies) {
        return json_patch::patch(object, patch).map_err(mismatch);
    }
    for operation in &patch.0 {
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(mismatch)?;
        if copies(operation) && object.to_string().len() > MAX_BODY_BYTES {
            return Err(ApiError::TooLarge(MAX_BODY_BYTES));
        }
    }
    Ok(())
}
