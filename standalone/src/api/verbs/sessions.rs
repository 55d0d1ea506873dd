//! Subresources of Pods that are WebSocket sessions: exec, attach and portforward.

mod channels;

use std::{future::ready, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts as _, ws::WebSocketUpgrade},
    response::Response,
};
use futures::{
    StreamExt as _,
    stream::{iter, once, select_all},
};
use http::request::Parts;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::io::ReaderStream;

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

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const OTHER_PROTOCOL: &str = "only WebSocket with v5.channel.k8s.io or v4.channel.k8s.io is \
    served, not SPDY: instead of kubectl port-forward, use the URL of the sandbox or the IP \
    address of the Pod";

const MAX_PORTS: usize = 32;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes of a message from the client.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 16 << 10;

/// Starts the session and responds with the upgrade.
pub(in crate::api) async fn open_session(
    state: &ApiState,
    request: &Request,
    parts: &mut Parts,
) -> Result<Response, ApiError> {
    let (_, pod) = current(state, request)?;
    // First, because kubectl repeats every request that fails, over SPDY, and shows that error.
    check(request, &pod)?;
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await;
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(PROTOCOLS)).ok();
    let upgrade = upgrade.filter(|upgrade| upgrade.selected_protocol().is_some());
    let upgrade = upgrade.ok_or_else(|| ApiError::BadRequest(OTHER_PROTOCOL.to_owned()))?;
    let permit = Arc::clone(&state.session_permits).try_acquire_owned();
    let permit = permit.map_err(|_| ApiError::TooManyRequests("too many sessions".to_owned()))?;
    let session = match request.target.subresource {
        Some(Subresource::Exec) => exec(state, request, &pod).await?,
        Some(Subresource::Attach) => attach(state, request, &pod).await?,
        _ => port_forward(&request.options.ports, &pod).await?,
    };
    let upgrade = upgrade
        .read_buffer_size(BUFFER_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(async move |socket| {
        channels::run(socket, session).await;
        drop(permit);
    }))
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

/// Connects to the ports. For port number `n`, channel `2n` carries the data and the next one an
/// error; the first message of each is the port.
async fn port_forward(ports: &[u16], pod: &Value) -> Result<Session, ApiError> {
    if !(1..=MAX_PORTS).contains(&ports.len()) {
        let message = format!("between 1 and {MAX_PORTS} ports must be specified");
        return Err(ApiError::BadRequest(message));
    }
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let address: Result<IpAddr, _> = address.parse();
    let address = address.map_err(|_| ApiError::BadRequest("the Pod has no address".to_owned()))?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (data, port) in (0..).step_by(2).zip(ports) {
        let first = [data, data + 1].map(|channel| (channel, port.to_le_bytes().to_vec().into()));
        let first = iter(first);
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((address, *port))).await;
        match connected.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            Ok(connection) => {
                let (reader, writer) = connection.into_split();
                let received = ReaderStream::with_capacity(reader, BUFFER_BYTES);
                let received = received.flat_map(iter).map(move |part| (data, part));
                inputs.extend([Some(Box::new(writer) as _), None]);
                outputs.push(first.chain(received).boxed());
            }
            Err(error) => {
                let error = (data + 1, format!("port {port}: {error}").into());
                inputs.extend([None, None]);
                outputs.push(first.chain(once(ready(error))).boxed());
            }
        }
    }
    Ok(Session {
        inputs,
        resize: None,
        output: select_all(outputs).boxed(),
    })
}
