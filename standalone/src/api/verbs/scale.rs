//! `/scale` of custom resources.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{current, write};
use crate::api::{
    ApiState,
    error::ApiError,
    object::{self, as_object, child_mut},
    patch::{Applier, Patch},
    registry::Scale,
    request::{Request, Subresource, Verb},
    verb_result::VerbResult,
};

pub(super) fn get(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let (_, object) = current(state, request)?;
    Ok(VerbResult::Plain(view(paths(request)?, &object)))
}

pub(super) fn set(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let scale = paths(request)?;
    let mut whole = request.clone();
    whole.target.subresource = None;
    let result = write::change(state, &whole, |object| {
        let next = next_scale(request, &view(scale, object))?;
        let replicas = next["spec"]["replicas"].as_u64().unwrap_or(0);
        let mut changed = object.clone();
        set_path(&mut changed, &scale.spec, json!(replicas));
        if let Some(revision) = object::resource_version(&next) {
            object::set_meta(&mut changed, "resourceVersion", revision);
        }
        Ok(changed)
    })?;
    match result {
        VerbResult::Object {
            object,
            changed,
            warnings,
            ..
        } => {
            let object = Arc::new(view(scale, &object));
            Ok(VerbResult::Object {
                object,
                created: false,
                changed,
                warnings,
            })
        }
        other => Ok(other),
    }
}

fn next_scale(request: &Request, current: &Value) -> Result<Value, ApiError> {
    debug_assert_eq!(request.target.subresource, Some(Subresource::Scale));
    match request.verb {
        Verb::Patch => {
            match Patch::parse(&request.content_type, &request.body, &request.target.kind)? {
                Patch::Apply(_) | Patch::Strategic(_) => Err(ApiError::UnsupportedMediaType(
                    "application/merge-patch+json".to_owned(),
                )),
                patch => patch.apply(current, &request.target.kind, &Applier::default()),
            }
        }
        _ => request.decode_body(),
    }
}

fn paths(request: &Request) -> Result<&Scale, ApiError> {
    request
        .target
        .kind
        .scale
        .as_ref()
        .ok_or(ApiError::UnknownPath)
}

fn view(scale: &Scale, object: &Value) -> Value {
    let at = |path: &[String]| {
        path.iter()
            .fold(object, |value, step| &value[step.as_str()])
    };
    let metadata = &object["metadata"];
    let selector = scale
        .selector
        .as_deref()
        .map_or("", |path| at(path).as_str().unwrap_or_default());
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
                "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": at(&scale.spec).as_u64().unwrap_or(0)},
        "status": {"replicas": at(&scale.status).as_u64().unwrap_or(0), "selector": selector},
    })
}

fn set_path(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents
        .iter()
        .fold(as_object(object), |fields, step| child_mut(fields, step));
    parent.insert(last.clone(), value);
}
