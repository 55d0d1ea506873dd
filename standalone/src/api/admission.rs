//! Admission of objects: identity, defaults, validation, and the rules about immutable parts. Pure
//! functions of the old object, the new object and the time.

mod builtin_rules;
mod create;
mod field_validation;
mod metadata_validation;
mod update;

use serde_json::Value;

pub(crate) use create::{NewObject, prepare_create};
pub(crate) use update::prepare_update;

use super::{
    error::{ApiError, Cause},
    object,
    registry::Kind,
};

/// Object ready to be stored, with the warnings for the client.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// True for kinds with `metadata.generation`.
fn has_generation(kind: &Kind) -> bool {
    kind.is_custom() || kind.is_pod() || kind.is("networking.k8s.io", "networkpolicies")
}

fn reject(kind: &Kind, object: &Value, causes: Vec<Cause>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        kind: kind.kind_group(),
        name: object::name(object).to_owned(),
        causes,
    })
}
