//! From what a client sent to what is stored: identity, defaults, the checks of the kind, and the rules about which
//! part of an object a request may change. Pure functions of the old object, the new one and the time.

mod conform;
mod create;
mod kinds;
mod names;
mod update;

use serde_json::Value;

pub(crate) use create::{NewObject, prepare_create};
pub(crate) use update::prepare_update;

use super::{
    error::{ApiError, Cause},
    object,
    registry::Kind,
};

/// An object fit to be stored, and what the client should be warned about.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Kinds that count changes of their specification.
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
