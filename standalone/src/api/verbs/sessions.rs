//! Subresources of Pods that are sessions: exec, attach and portforward.

mod channels;
mod port_forward;
mod spdy;
mod tunnel;
mod upgrade;

use std::{future::ready, sync::Arc};

use axum::response::Response;
use futures::{
    StreamExt as _,
    stream::{iter, once},
};
use http::request::Parts;
use serde_json::Value;

use self::upgrade::Upgrade;
use super::{
    current,
    pod_subresources::{container_path, kubelet, open_log},
};
use crate::api::{
    ApiState,
    error::ApiError,
    kubelet::{LogQuery, Session, exit_status},
    request::{Request, Subresource},
};

/// Starts the session and responds with the upgrade.
pub(in crate::api) async fn open_session(
    state: &Arc<ApiState>,
    request: &Request,
    parts: &mut Parts,
) -> Result<Response, ApiError> {
    let (key, pod) = current(state, request)?;
    // First, because kubectl repeats every request that fails, over SPDY, and shows that error.
    check(request, &pod)?;
    let is_forward = request.target.subresource == Some(Subresource::PortForward);
    let upgrade = Upgrade::take(parts, is_forward).await?;
    let permit = Arc::clone(&state.session_permits).try_acquire_owned();
    let permit = permit.map_err(|_| ApiError::TooManyRequests("too many sessions".to_owned()))?;
    let connect = port_forward::connector(state, key, &pod);
    Ok(match upgrade {
        Upgrade::Channels(upgrade) => {
            let session = match request.target.subresource {
                Some(Subresource::Exec) => exec(state, request, &pod).await?,
                Some(Subresource::Attach) => attach(state, request, &pod).await?,
                _ => port_forward::channels(&request.options.ports, &pod).await?,
            };
            upgrade.on_upgrade(async move |socket| {
                channels::run(socket, session).await;
                drop(permit);
            })
        }
        Upgrade::Spdy(upgrade) => upgrade.on_upgrade(async move |socket| {
            let (input, output) = upgrade::bytes_of(socket);
            tunnel::run(input, output, connect).await;
            drop(permit);
        }),
    })
}

fn check(request: &Request, pod: &Value) -> Result<(), ApiError> {
    let options = &request.options;
    let message = match request.target.subresource {
        Some(Subresource::PortForward) => return Ok(()),
        Some(Subresource::Exec) if options.exec.command.is_empty() => {
            "you must specify at least 1 command for the container"
        }
        Some(Subresource::Attach) if options.exec.stdin => {
            "containers have no standard input here: attach without it, or use exec"
        }
        _ => return container_path(request, pod).map(drop),
    };
    Err(ApiError::BadRequest(message.to_owned()))
}

async fn exec(state: &ApiState, request: &Request, pod: &Value) -> Result<Session, ApiError> {
    let (container, command) = (container_path(request, pod)?, request.options.exec.clone());
    let session = kubelet(state)?.exec(container, command).await;
    session.map_err(|error| ApiError::Internal(error.to_string()))
}

/// Sends the output of a container from now on.
async fn attach(state: &ApiState, request: &Request, pod: &Value) -> Result<Session, ApiError> {
    let query = LogQuery {
        follow: true,
        tail: Some(0),
        ..LogQuery::default()
    };
    let log = open_log(state, request, pod, query).await?;
    let output = log.flat_map(iter).map(|part| (1, part));
    Ok(Session {
        inputs: Vec::new(),
        resize: None,
        output: output.chain(once(ready(exit_status(0)))).boxed(),
    })
}
