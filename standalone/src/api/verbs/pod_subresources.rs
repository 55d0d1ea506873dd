//! Subresources of Pods: log, binding, eviction.

use axum::body::Body;
use serde_json::{Value, json};

use super::{current, delete, write};
use crate::api::{
    ApiState,
    error::ApiError,
    object::{as_object, child_mut},
    pod_logs::LogError,
    request::{Request, Verb},
    verb_result::VerbResult,
};

pub(super) async fn logs(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let (object_key, pod) = current(state, request)?;
    check_container(&pod, request.options.log.container.as_deref())?;
    let Some(logs) = state.logs.read().clone() else {
        return Err(ApiError::BadRequest(
            "no node serves the logs of this Pod".to_owned(),
        ));
    };
    let read = logs
        .read(
            &object_key.key.namespace,
            &object_key.key.name,
            &request.options.log,
        )
        .await;
    let text = read.map(|stream| VerbResult::Text(Body::from_stream(stream)));
    text.map_err(|error| match error {
        LogError::NotAvailable(message) => ApiError::BadRequest(message),
        LogError::Failed(message) => ApiError::Internal(message),
    })
}

fn check_container(pod: &Value, container: Option<&str>) -> Result<(), ApiError> {
    let Some(wanted) = container else {
        return Ok(());
    };
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let known = lists
        .iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    if known
        .into_iter()
        .any(|container| container["name"] == wanted)
    {
        return Ok(());
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::BadRequest(format!(
        "container {wanted} is not valid for pod {name}"
    )))
}

/// Binds the Pod to a node, for schedulers.
pub(super) fn bind(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let binding = request.decode_body()?;
    let node = binding["target"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if node.is_empty() {
        return Err(ApiError::BadRequest(
            "target.name: Required value".to_owned(),
        ));
    }
    let mut whole = request.clone();
    whole.target.subresource = None;
    write::change(state, &whole, |pod| {
        let mut pod = pod.clone();
        child_mut(as_object(&mut pod), "spec").insert("nodeName".to_owned(), json!(node));
        Ok(pod)
    })?;
    Ok(done())
}

/// Deletes the Pod. There are no disruption budgets to check.
pub(super) fn evict(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let eviction = request.decode_body()?;
    let mut whole = request.clone();
    whole.target.subresource = None;
    whole.verb = Verb::Delete;
    whole.body = eviction
        .get("deleteOptions")
        .map(|options| options.to_string().into())
        .unwrap_or_default();
    whole.content_type.clear();
    delete::delete(state, &whole)?;
    Ok(done())
}

fn done() -> VerbResult {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "code": 201});
    VerbResult::Status {
        status,
        changed: true,
    }
}
