//! Ports of a Pod: connections to them, and port-forward over WebSocket channels.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, StreamExt as _,
    future::ready,
    stream::{iter, once, select_all},
};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::io::ReaderStream;

use super::tunnel::Connect;
use crate::api::{ApiState, error::ApiError, kubelet::Session, object, store::ObjectKey};

const MAX_PORTS: usize = 32;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const BUFFER_BYTES: usize = 16 << 10;
const NOT_RUNNING: &str = "the Pod is not running";

/// Connector to one Pod. It looks the Pod up each time: later its address may belong to another.
pub(super) fn connector(state: &Arc<ApiState>, key: ObjectKey, pod: &Value) -> Arc<Connect> {
    let (state, uid) = (Arc::clone(state), object::uid(pod).to_owned());
    Arc::new(move |port| {
        let pod = state.store.get(&key);
        let pod = pod.filter(|pod| object::uid(pod) == uid);
        let address = pod.ok_or(NOT_RUNNING).and_then(|pod| address(&pod));
        let failure = format!(
            "error forwarding port {port} to pod {}, uid {uid}",
            key.name
        );
        let connected = async move {
            let address = address.map_err(|reason| format!("{failure}: {reason}"))?;
            let refused = |error| format!("{failure}: failed to connect to {address}: {error}");
            connect(address, port).await.map_err(refused)
        };
        connected.boxed()
    })
}

fn address(pod: &Value) -> Result<IpAddr, &'static str> {
    let status = &pod["status"];
    // A Pod that has ended keeps its address in the status.
    let address = status["podIP"]
        .as_str()
        .filter(|_| status["phase"] == "Running");
    address
        .and_then(|address| address.parse().ok())
        .ok_or(NOT_RUNNING)
}

async fn connect(address: IpAddr, port: u16) -> io::Result<TcpStream> {
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((address, port))).await;
    connected.unwrap_or_else(|elapsed| Err(elapsed.into()))
}

/// Connects to the ports. For port number `n`, channel `2n` carries the data and the next one an
/// error; the first message of each is the port.
pub(super) async fn channels(ports: &[u16], pod: &Value) -> Result<Session, ApiError> {
    if !(1..=MAX_PORTS).contains(&ports.len()) {
        let message = format!("between 1 and {MAX_PORTS} ports must be specified");
        return Err(ApiError::BadRequest(message));
    }
    let address = address(pod).map_err(|reason| ApiError::BadRequest(reason.to_owned()))?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (data, port) in (0..).step_by(2).zip(ports) {
        let first = [data, data + 1].map(|channel| (channel, port.to_le_bytes().to_vec().into()));
        let first = iter(first);
        match connect(address, *port).await {
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
