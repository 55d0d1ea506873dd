//! Subresources of Pods: log, binding, eviction.

use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{current, delete, write};
use crate::api::{
    ApiState, encode,
    error::ApiError,
    object::{self, as_object, child_mut, items},
    pod_logs::LogError,
    request::{Request, Verb},
};

pub(super) async fn logs(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let (key, pod) = current(state, request)?;
    let query = &request.options.log;
    check_container(&pod, query.container.as_deref())?;
    let Some(logs) = state.logs.read().clone() else {
        let message = "no node serves the logs of this Pod";
        return Err(ApiError::BadRequest(message.to_owned()));
    };
    match logs.read(&key.namespace, &key.name, query).await {
        Ok(stream) => Ok(encode::ok("text/plain", Body::from_stream(stream))),
        Err(LogError::NotAvailable(message)) => Err(ApiError::BadRequest(message)),
        Err(LogError::Failed(message)) => Err(ApiError::Internal(message)),
    }
}

fn check_container(pod: &Value, container: Option<&str>) -> Result<(), ApiError> {
    let Some(wanted) = container else {
        return Ok(());
    };
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut known = lists.iter().flat_map(|list| items(&pod["spec"][list]));
    if known.any(|container| container["name"] == wanted) {
        return Ok(());
    }
    let name = object::name(pod);
    Err(ApiError::BadRequest(format!(
        "container {wanted} is not valid for pod {name}"
    )))
}

/// Binds the Pod to a node, for schedulers.
pub(super) fn bind(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let binding = request.decode_body()?;
    let node = &binding["target"]["name"];
    if node.as_str().is_none_or(str::is_empty) {
        return Err(ApiError::BadRequest(
            "target.name: Required value".to_owned(),
        ));
    }
    write::change(state, &of_pod(request), |pod| {
        let mut pod = pod.clone();
        child_mut(as_object(&mut pod), "spec").insert("nodeName".to_owned(), node.clone());
        Ok(pod)
    })?;
    Ok(done())
}

/// Deletes the Pod. There are no disruption budgets to check.
pub(super) fn evict(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let eviction = request.decode_body()?;
    let options = eviction.get("deleteOptions");
    let whole = Request {
        verb: Verb::Delete,
        body: options
            .map(|options| options.to_string().into())
            .unwrap_or_default(),
        content_type: String::new(),
        ..of_pod(request)
    };
    delete::delete(state, &whole)?;
    Ok(done())
}

/// The request for the Pod itself.
fn of_pod(request: &Request) -> Request {
    let mut whole = request.clone();
    whole.target.subresource = None;
    whole
}

fn done() -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "code": 201});
    encode::json(StatusCode::OK, &status)
}
