//! Upgrades of HTTP connections: to WebSocket with Kubernetes' channels, and for ports also to SPDY,
//! in WebSocket messages or, as before Kubernetes 1.31 and in many Go programs, instead of HTTP.

use std::{future::ready, io};

use axum::{
    body::Body,
    extract::{
        FromRequestParts as _,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use crate::api::error::ApiError;

const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const FORWARD: &str = "portforward.k8s.io";
const FORWARD_IN_MESSAGES: &str = "SPDY/3.1+portforward.k8s.io";
const SPDY: &str = "SPDY/3.1";
const PROTOCOL_VERSION: &str = "x-stream-protocol-version";

const OTHER_PROTOCOL: &str = "only WebSocket with v5.channel.k8s.io or v4.channel.k8s.io is \
    served, and for port-forward SPDY/3.1 with portforward.k8s.io";

/// Maximum number of bytes of a message from the client.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 16 << 10;

/// Upgrade that a client requests.
pub(super) enum Upgrade {
    Channels(WebSocketUpgrade),
    SpdyInMessages(WebSocketUpgrade),
    Spdy(OnUpgrade),
}

impl Upgrade {
    pub(super) async fn take(parts: &mut Parts, is_forward: bool) -> Result<Self, ApiError> {
        let upgrade = if is_forward && requests_spdy(&parts.headers) {
            parts.extensions.remove().map(Self::Spdy)
        } else {
            let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await;
            upgrade
                .ok()
                .and_then(|upgrade| web_socket(upgrade, is_forward))
        };
        upgrade.ok_or_else(|| ApiError::BadRequest(OTHER_PROTOCOL.to_owned()))
    }
}

fn requests_spdy(headers: &HeaderMap) -> bool {
    let is_spdy =
        |protocol: &HeaderValue| protocol.as_bytes().eq_ignore_ascii_case(SPDY.as_bytes());
    let mut versions = headers.get_all(PROTOCOL_VERSION).iter();
    headers.get(header::UPGRADE).is_some_and(is_spdy) && versions.any(|version| version == FORWARD)
}

fn web_socket(upgrade: WebSocketUpgrade, is_forward: bool) -> Option<Upgrade> {
    let forward = is_forward.then_some(FORWARD_IN_MESSAGES);
    let upgrade = upgrade
        .protocols(CHANNELS.into_iter().chain(forward))
        .read_buffer_size(BUFFER_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES);
    if upgrade.selected_protocol()? == FORWARD_IN_MESSAGES {
        return Some(Upgrade::SpdyInMessages(upgrade));
    }
    Some(Upgrade::Channels(upgrade))
}

/// Response after which the connection carries SPDY.
pub(super) fn switch_to_spdy() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, SPDY),
        (HeaderName::from_static(PROTOCOL_VERSION), FORWARD),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// The bytes of binary messages, both ways.
pub(super) fn bytes_of(socket: WebSocket) -> (impl AsyncRead + Unpin, impl AsyncWrite) {
    let (sink, stream) = socket.split();
    let data = stream.map_err(io::Error::other).try_filter_map(|message| {
        ready(Ok(match message {
            Message::Binary(data) => Some(data),
            _ => None,
        }))
    });
    let message = |data: Bytes| ready(Ok::<_, io::Error>(Message::Binary(data)));
    let sink = sink.sink_map_err(io::Error::other).with(message);
    (
        StreamReader::new(data),
        SinkWriter::new(CopyToBytes::new(sink)),
    )
}
