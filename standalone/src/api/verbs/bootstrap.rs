//! Objects that exist before the first request.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::api::{
    ApiState,
    admission::{self, NewObject},
    error::ApiError,
    object::{self, as_object},
    registry::Kind,
    request::FieldValidation,
    store::ObjectKey,
};

pub(super) fn ensure_default_namespace(state: &ApiState) -> Result<(), ApiError> {
    let Some(kind) = state.registry.find("", "v1", "namespaces") else {
        return Ok(());
    };
    let body = json!({"metadata": {"name": "default",
        "labels": {"kubernetes.io/metadata.name": "default"}}});
    put_new(state, kind, body)
}

/// Replaces the stored CRDs by those of the program.
pub(super) fn publish_definitions(
    state: &ApiState,
    definitions: &[CustomResourceDefinition],
) -> Result<(), ApiError> {
    let Some(kind) = state
        .registry
        .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(());
    };
    for old in state.store.list(kind.shard, None).0 {
        let object_key = ObjectKey::of(kind.shard, &old);
        state.store.remove(&object_key, &old, Value::clone(&old))?;
    }
    for definition in definitions {
        let mut body = serde_json::to_value(definition)
            .map_err(|error| ApiError::Internal(error.to_string()))?;
        establish(&mut body);
        put_new(state, kind, body)?;
    }
    Ok(())
}

fn put_new(state: &ApiState, kind: &Kind, body: Value) -> Result<(), ApiError> {
    let status = body["status"].clone();
    let new = NewObject {
        kind,
        namespace: None,
        clock: &state.clock,
        validation: FieldValidation::Ignore,
    };
    let mut object = admission::prepare_create(&new, body)?.object;
    if !status.is_null() {
        object::as_object(&mut object).insert("status".to_owned(), status);
    }
    let object_key = ObjectKey::of(kind.shard, &object);
    state.store.swap(&object_key, None, object)?;
    Ok(())
}

/// Sets the status of a served CRD.
fn establish(definition: &mut Value) {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "reason": "Embedded", "message": ""});
    let names = definition["spec"]["names"].clone();
    let versions: Vec<_> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| version["name"].clone())
        .collect();
    let status = json!({"conditions": [condition("NamesAccepted"), condition("Established")],
        "acceptedNames": names, "storedVersions": versions});
    as_object(definition).insert("status".to_owned(), status);
}
