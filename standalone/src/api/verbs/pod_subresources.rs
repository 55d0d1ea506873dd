//! Subresources of Pods: log, binding, eviction.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{current, delete, write};
use crate::api::{
    ApiState, encode,
    error::ApiError,
    kubelet::{ContainerPath, Kubelet, LogError, LogQuery, LogStream},
    object::{self, as_object, child_mut, items},
    request::{Request, Verb},
};

pub(super) async fn logs(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let (_, pod) = current(state, request)?;
    let stream = open_log(state, request, &pod, request.options.log.clone()).await?;
    Ok(encode::ok("text/plain", Body::from_stream(stream)))
}

pub(super) async fn open_log(
    state: &ApiState,
    request: &Request,
    pod: &Value,
    query: LogQuery,
) -> Result<LogStream, ApiError> {
    let container = container_path(request, pod)?;
    let log = kubelet(state)?.logs(container, query).await;
    log.map_err(|error| match error {
        LogError::NotAvailable(message) => ApiError::BadRequest(message),
        LogError::Failed(message) => ApiError::Internal(message),
    })
}

pub(super) fn kubelet(state: &ApiState) -> Result<Arc<dyn Kubelet>, ApiError> {
    let kubelet = state.kubelet.read().clone();
    kubelet.ok_or_else(|| ApiError::BadRequest("no node runs this Pod".to_owned()))
}

/// The requested container, or the only one of the Pod.
pub(super) fn container_path(request: &Request, pod: &Value) -> Result<ContainerPath, ApiError> {
    let names = |list: &str| {
        let containers = items(&pod["spec"][list]).iter();
        containers
            .filter_map(|container| container["name"].as_str())
            .collect()
    };
    let (main, init): (Vec<_>, Vec<_>) = (names("containers"), names("initContainers"));
    let name = object::name(pod);
    let container = match (request.options.container.as_deref(), &main[..]) {
        (Some(found), _) if main.contains(&found) || init.contains(&found) => Ok(found),
        (None, [only]) => Ok(*only),
        (Some(wanted), _) => Err(format!("container {wanted} is not valid for pod {name}")),
        (None, _) => Err(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            main.join(" ")
        )),
    };
    let container = container.map_err(ApiError::BadRequest)?;
    Ok([object::namespace(pod), name, container].map(str::to_owned))
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
