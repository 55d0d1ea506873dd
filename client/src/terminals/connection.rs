//! One WebSocket to a terminal, over the HTTP client of all other calls: the same certificates and
//! proxies apply.

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode};
use reqwest::Upgraded;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::channel::{self, TerminalEvent};
use super::{TERMINALS, gone};
use crate::api::Repeat;
use crate::{Error, Sandbox};

/// Larger than any message that the server sends.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

pub(super) type Sink = SplitSink<WebSocketStream<Upgraded>, Message>;

/// Messages of the server.
#[derive(Debug)]
pub(super) struct Reader(SplitStream<WebSocketStream<Upgraded>>);

/// Connects as a viewer: from an offset of the output on, or with the kept output.
pub(super) async fn connect(
    sandbox: &Sandbox,
    id: &str,
    is_read_only: bool,
    after: Option<u64>,
) -> Result<(Sink, Reader), Error> {
    let after = after.map(|offset| offset.to_string());
    let mut query = Vec::new();
    query.extend(is_read_only.then_some(("read_only", "true")));
    query.extend(after.iter().map(|after| ("after", after.as_str())));
    let key = generate_key();
    let request = || {
        let request = sandbox.request(Method::GET, &[TERMINALS, id, "connect"], &query)?;
        Ok(request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key))
    };
    let response = sandbox
        .send(Repeat::Temporary, request)
        .await
        .map_err(|error| gone(error, id))?;
    let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    let is_accepted = accept
        .is_some_and(|accept| accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_accepted {
        return Err(protocol(sandbox, "no WebSocket"));
    }
    let upgraded = response.upgrade().await;
    let upgraded = upgraded.map_err(|error| Error::Disconnected(error.to_string()))?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(limits)).await;
    let (sink, stream) = socket.split();
    Ok((sink, Reader(stream)))
}

pub(super) fn protocol(sandbox: &Sandbox, text: &str) -> Error {
    Error::Protocol(sandbox.info().url.clone(), text.into())
}

pub(super) async fn send(sink: &mut Sink, message: Bytes) -> Result<(), Error> {
    let sent = sink.send(Message::Binary(message)).await;
    sent.map_err(|error| Error::Disconnected(error.to_string()))
}

impl Reader {
    /// Returns the next event; [`Error::Disconnected`] when the connection ends.
    pub(super) async fn next(&mut self, sandbox: &Sandbox) -> Result<TerminalEvent, Error> {
        loop {
            let message = match self.0.next().await {
                Some(Ok(Message::Binary(message))) => message,
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.to_string());
                    return Err(Error::Disconnected(
                        reason.unwrap_or_else(|| "closed by the server".into()),
                    ));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(Error::Disconnected(error.to_string())),
                None => return Err(Error::Disconnected("closed by the server".into())),
            };
            let parsed = channel::parse(message).map_err(|text| protocol(sandbox, &text))?;
            if let Some(event) = parsed {
                return Ok(event);
            }
        }
    }
}
