//! A port of this machine that leads to the gateway: each connection is a WebSocket through the API
//! server to a Pod (subresource `portforward`, subprotocol `v4.channel.k8s.io`). The first byte of a
//! message is the channel, and the first message of each channel has the port.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use shared::kubernetes::error_text::with_sources;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::Gateway;
use crate::failure::Failure;
use crate::output::note;

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

const SUBPROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const PORT_BYTES: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(10);
/// A WebSocket has no half-close: this machine's end is passed on when the rest may have come.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(5);
/// More than a command uses at once.
const MAX_CONNECTIONS: usize = 64;
const CHUNK_BYTES: usize = 32 << 10;
/// Larger than any message of a kubelet.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;

impl Gateway {
    /// Listens on a port of this machine until the process ends. Fails if no Pod can be reached.
    pub(crate) async fn forward(self) -> Result<SocketAddr, Failure> {
        let first = self.open().await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(accept(listener, Arc::new(self), first));
        Ok(address)
    }
}

async fn accept(listener: TcpListener, gateway: Arc<Gateway>, first: Socket) {
    let mut first = Some(first);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Further connections wait in the queue of the listener.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (gateway, socket) = (gateway.clone(), first.take());
        tokio::spawn(async move {
            let copied = async {
                let socket = match socket {
                    Some(socket) => socket,
                    None => gateway.open().await?,
                };
                copy(stream, socket).await
            };
            if let Err(failure) = copied.await {
                note(&format!("port forward: {failure}"));
            }
            drop(permit);
        });
    }
}

/// Connects to a port of a Pod.
pub(super) async fn open(
    client: &Client,
    namespace: &str,
    pod: &str,
    port: u16,
) -> Result<Socket, Failure> {
    let failed = |cause: String| Failure::Local(format!("cannot reach Pod {pod}: {cause}"));
    let key = generate_key();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}");
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
        .body(Body::empty())
        .map_err(|error| failed(error.to_string()))?;
    let handshake = async {
        let response = client.send(request).await;
        let response = response.map_err(|error| failed(with_sources(&error)))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ERROR_BYTES);
            let body = body.collect().await.map(Collected::to_bytes);
            return Err(failed(message(&body.unwrap_or_default(), status)));
        }
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accept.is_none_or(|accept| accept != derive_accept_key(key.as_bytes()).as_str()) {
            return Err(failed("no WebSocket".into()));
        }
        let upgraded = hyper::upgrade::on(response).await;
        upgraded.map_err(|error| failed(error.to_string()))
    };
    let upgraded = tokio::time::timeout(TIMEOUT, handshake).await;
    let upgraded = upgraded.unwrap_or_else(|_| Err(failed("no response within 10 s".into())))?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(limits)).await)
}

/// Explanation of the API server, which is a `Status` object.
fn message(body: &Bytes, status: StatusCode) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = parsed.as_ref().and_then(|body| body["message"].as_str());
    message.map_or_else(|| format!("status {status}"), str::to_owned)
}

/// Copies both ways until the Pod closes, or this machine does and the rest of a response has come.
async fn copy(mut stream: TcpStream, socket: Socket) -> Result<(), Failure> {
    let (reader, writer) = stream.split();
    let (mut sink, messages) = socket.split();
    let mut received = pin!(receive(messages, writer));
    tokio::select! {
        received = &mut received => return received,
        sent = send(reader, &mut sink) => sent?,
    }
    let rest = tokio::time::timeout(CLOSED_TIMEOUT, received).await;
    let _ = sink.close().await;
    rest.unwrap_or(Ok(()))
}

async fn send(
    mut reader: ReadHalf<'_>,
    sink: &mut SplitSink<Socket, Message>,
) -> Result<(), Failure> {
    let mut buffer = vec![DATA; CHUNK_BYTES];
    while let Ok(read @ 1..) = reader.read(&mut buffer[1..]).await {
        let message = Bytes::copy_from_slice(&buffer[..=read]);
        let sent = sink.send(Message::Binary(message)).await;
        sent.map_err(|error| Failure::Local(error.to_string()))?;
    }
    Ok(())
}

async fn receive(
    mut messages: SplitStream<Socket>,
    mut writer: WriteHalf<'_>,
) -> Result<(), Failure> {
    let mut is_begun = [false; 2];
    while let Some(message) = messages.next().await {
        let Message::Binary(message) =
            message.map_err(|error| Failure::Local(error.to_string()))?
        else {
            continue;
        };
        let Some((channel, mut data)) = message.split_first() else {
            continue;
        };
        let Some(is_begun) = is_begun.get_mut(usize::from(*channel)) else {
            continue;
        };
        if !std::mem::replace(is_begun, true) {
            data = data.get(PORT_BYTES..).unwrap_or_default();
        }
        if *channel == DATA {
            // A client that has left needs nothing more.
            if writer.write_all(data).await.is_err() {
                return Ok(());
            }
        } else if !data.is_empty() {
            return Err(Failure::Local(String::from_utf8_lossy(data).into_owned()));
        }
    }
    let _ = writer.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use kube::Config;
    use tokio_tungstenite::tungstenite::handshake::server::{Callback, ErrorResponse};
    use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

    use super::*;

    /// Handshake of an API server.
    struct Handshake {
        is_allowed: bool,
    }

    impl Callback for Handshake {
        fn on_request(
            self,
            request: &Request,
            mut response: Response,
        ) -> Result<Response, ErrorResponse> {
            let path = "/api/v1/namespaces/ns/pods/gateway-1/portforward?ports=5000";
            assert_eq!(request.uri().to_string(), path);
            if !self.is_allowed {
                let body = r#"{"kind": "Status", "message": "pods is forbidden"}"#.to_owned();
                let mut rejected = http::Response::new(Some(body));
                *rejected.status_mut() = StatusCode::FORBIDDEN;
                return Err(rejected);
            }
            let protocol = HeaderValue::from_static(SUBPROTOCOL);
            response
                .headers_mut()
                .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
            Ok(response)
        }
    }

    /// Connects to a server that sends messages and then what it receives.
    async fn socket(
        is_allowed: bool,
        messages: &'static [&'static [u8]],
    ) -> Result<Socket, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let handshake = Handshake { is_allowed };
            let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, handshake).await
            else {
                return;
            };
            for message in messages {
                let message = Message::Binary(Bytes::from_static(message));
                socket.send(message).await.unwrap();
            }
            while let Some(Ok(Message::Binary(message))) = socket.next().await {
                socket.send(Message::Binary(message)).await.unwrap();
            }
        });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        open(&client, "ns", "gateway-1", 5000).await
    }

    /// A connection of this machine to the socket.
    async fn connection(
        socket: Socket,
    ) -> (TcpStream, tokio::task::JoinHandle<Result<(), Failure>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let local = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, _) = listener.accept().await.unwrap();
        (local.unwrap(), tokio::spawn(copy(accepted, socket)))
    }

    #[tokio::test]
    async fn data_goes_both_ways_without_the_ports_at_the_beginning() {
        let socket = socket(true, &[b"\0\x88\x13", b"\x01\x88\x13", b"\0hello "]).await;
        let (mut local, copied) = connection(socket.unwrap()).await;
        local.write_all(b"echo").await.unwrap();
        let mut text = [0; 10];
        local.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"hello echo");
        drop(local);
        tokio::time::pause();
        copied.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn error_of_the_pod_ends_the_connection() {
        let messages: &[&[u8]] = &[b"\x01\x88\x13", b"\x01connection refused", b"\x07?", b""];
        let (mut local, copied) = connection(socket(true, messages).await.unwrap()).await;
        let error = copied.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "connection refused");
        assert_eq!(local.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn missing_right_is_explained() {
        let error = socket(false, &[]).await.unwrap_err().to_string();
        assert_eq!(error, "cannot reach Pod gateway-1: pods is forbidden");
    }
}
