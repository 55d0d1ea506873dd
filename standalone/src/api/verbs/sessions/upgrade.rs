//! Upgrades of HTTP connections to WebSocket: with Kubernetes' channels, and for ports also with
//! SPDY in the messages.

use std::{future::ready, io};

use axum::extract::{
    FromRequestParts as _,
    ws::{Message, WebSocket, WebSocketUpgrade},
};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use crate::api::error::ApiError;

const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const FORWARD: &str = "SPDY/3.1+portforward.k8s.io";

const OTHER_PROTOCOL: &str = "only WebSocket with v5.channel.k8s.io or v4.channel.k8s.io is \
    served, and for port-forward SPDY/3.1+portforward.k8s.io";

const MAX_MESSAGE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 16 << 10;

pub(super) enum Upgrade {
    Channels(WebSocketUpgrade),
    Spdy(WebSocketUpgrade),
}

impl Upgrade {
    pub(super) async fn take(parts: &mut Parts, is_forward: bool) -> Result<Self, ApiError> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await;
        let upgrade = upgrade.ok().and_then(|upgrade| select(upgrade, is_forward));
        upgrade.ok_or_else(|| ApiError::BadRequest(OTHER_PROTOCOL.to_owned()))
    }
}

fn select(upgrade: WebSocketUpgrade, is_forward: bool) -> Option<Upgrade> {
    let forward = is_forward.then_some(FORWARD);
    let upgrade = upgrade
        .protocols(CHANNELS.into_iter().chain(forward))
        .read_buffer_size(BUFFER_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES);
    if upgrade.selected_protocol()? == FORWARD {
        return Some(Upgrade::Spdy(upgrade));
    }
    Some(Upgrade::Channels(upgrade))
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
