//! Objects that exist before the first request.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::{
    ApiState, admission, error::ApiError, garbage_collector, object::items,
    request::FieldValidation, store::ObjectKey,
};

/// Creates the default namespace and the CRDs, and collects the garbage of a crash.
pub(super) fn prepare(state: &ApiState, definitions: &[CustomResourceDefinition]) {
    let namespace = json!({"metadata": {"name": "default",
        "labels": {"kubernetes.io/metadata.name": "default"}}});
    for result in [
        put_new(state, ("", "namespaces"), namespace),
        publish_definitions(state, definitions),
        garbage_collector::collect_orphans(state),
    ] {
        if let Err(error) = result {
            tracing::error!(%error, "cannot prepare the embedded API");
        }
    }
}

/// Replaces the stored CRDs by those of the program.
fn publish_definitions(
    state: &ApiState,
    definitions: &[CustomResourceDefinition],
) -> Result<(), ApiError> {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    if let Some(kind) = state.registry.find(group, "v1", plural) {
        for old in state.store.list(kind.shard, None) {
            state.store.remove(&ObjectKey::of(kind.shard, &old), &old)?;
        }
    }
    for definition in definitions {
        let body = serde_json::to_value(definition);
        let mut body = body.map_err(|error| ApiError::Internal(error.to_string()))?;
        body["status"] = served_status(&body["spec"]);
        put_new(state, (group, plural), body)?;
    }
    Ok(())
}

fn put_new(state: &ApiState, of: (&str, &str), body: Value) -> Result<(), ApiError> {
    let Some(kind) = state.registry.find(of.0, "v1", of.1) else {
        return Ok(());
    };
    let status = body["status"].clone();
    let (now, validation) = (state.clock.now(), FieldValidation::Ignore);
    let (mut object, _) = admission::prepare_create(kind, None, now, validation, body)?;
    if !status.is_null() {
        object["status"] = status;
    }
    state
        .store
        .swap(&ObjectKey::of(kind.shard, &object), None, object)?;
    Ok(())
}

fn served_status(spec: &Value) -> Value {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "reason": "Embedded", "message": ""});
    let versions = items(&spec["versions"])
        .iter()
        .map(|version| &version["name"]);
    json!({"conditions": [condition("NamesAccepted"), condition("Established")],
        "acceptedNames": spec["names"], "storedVersions": versions.collect::<Vec<_>>()})
}
