//! `/scale` of custom resources.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::{current, write};
use crate::api::{
    ApiState,
    encode::{self, object_response},
    error::ApiError,
    object::{self, as_object, child_mut},
    patch::{Applier, Patch},
    registry::Scale,
    request::{Request, Verb},
};

pub(super) fn get(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let (_, object) = current(state, request)?;
    Ok(encode::json(
        StatusCode::OK,
        &view(paths(request)?, &object),
    ))
}

pub(super) fn set(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let scale = paths(request)?;
    let mut whole = request.clone();
    whole.target.subresource = None;
    let (object, warnings) = write::change(state, &whole, |object| {
        let next = next_scale(request, &view(scale, object))?;
        // The schema rejects a negative number.
        let replicas = next["spec"]["replicas"].as_i64().unwrap_or(0);
        let mut changed = object.clone();
        set_path(&mut changed, &scale.spec, json!(replicas));
        if let Some(revision) = object::resource_version(&next) {
            object::set_meta(&mut changed, "resourceVersion", revision);
        }
        Ok(changed)
    })?;
    let view = view(scale, &object);
    Ok(object_response(
        state,
        request,
        StatusCode::OK,
        &view,
        &warnings,
    ))
}

fn next_scale(request: &Request, current: &Value) -> Result<Value, ApiError> {
    if request.verb != Verb::Patch {
        return request.decode_body();
    }
    let kind = &request.target.kind;
    match Patch::parse(&request.content_type, &request.body, kind)? {
        Patch::Apply(_) | Patch::Strategic(_) => Err(ApiError::UnsupportedMediaType(
            "application/merge-patch+json".to_owned(),
        )),
        patch => patch.apply(current, kind, &Applier::default()),
    }
}

fn paths(request: &Request) -> Result<&Scale, ApiError> {
    let scale = request.target.kind.scale.as_ref();
    scale.ok_or(ApiError::UnknownPath)
}

fn view(scale: &Scale, object: &Value) -> Value {
    let at = |path: &[String]| {
        path.iter()
            .fold(object, |value, step| &value[step.as_str()])
    };
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"],
            "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": at(&scale.spec).as_u64().unwrap_or(0)},
        "status": {"replicas": at(&scale.status).as_u64().unwrap_or(0),
            "selector": at(&scale.selector).as_str().unwrap_or_default()},
    })
}

fn set_path(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let root = as_object(object);
    let parent = parents
        .iter()
        .fold(root, |fields, step| child_mut(fields, step));
    parent.insert(last.clone(), value);
}
