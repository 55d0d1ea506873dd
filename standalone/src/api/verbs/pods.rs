//! What only Pods have: output, binding to a node, eviction.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, current, delete, write};
use crate::api::{
    Inner,
    error::ApiError,
    node::LogError,
    object::{as_object, child_mut},
    request::{Request, Verb},
};

pub(super) async fn logs(inner: &Inner, request: &Request) -> Result<Answer, ApiError> {
    let (place, pod) = current(inner, request)?;
    check_container(&pod, request.options.log.container.as_deref())?;
    let Some(logs) = inner.logs.read().clone() else {
        return Err(ApiError::BadRequest(
            "no node keeps the output of this Pod".to_owned(),
        ));
    };
    let read = logs
        .read(&place.key.namespace, &place.key.name, &request.options.log)
        .await;
    read.map(Answer::Text).map_err(|error| match error {
        LogError::NotAvailable(why) => ApiError::BadRequest(why),
        LogError::Failed(why) => ApiError::Internal(why),
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

/// A scheduler's way to choose a node.
pub(super) fn bind(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let binding = write::decode(request)?;
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
    write::change(inner, &whole, |pod| {
        let mut pod = pod.clone();
        child_mut(as_object(&mut pod), "spec").insert("nodeName".to_owned(), json!(node));
        Ok(pod)
    })?;
    Ok(done())
}

/// Eviction is a delete that asks first; there are no disruption budgets to ask.
pub(super) fn evict(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let eviction = write::decode(request)?;
    let mut whole = request.clone();
    whole.target.subresource = None;
    whole.verb = Verb::Delete;
    whole.body = eviction
        .get("deleteOptions")
        .map(|options| options.to_string().into())
        .unwrap_or_default();
    whole.content_type.clear();
    delete::delete(inner, &whole)?;
    Ok(done())
}

fn done() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::Status {
        status,
        changed: true,
    }
}
