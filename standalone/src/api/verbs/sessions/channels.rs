//! WebSocket protocols `v4.channel.k8s.io` and `v5.channel.k8s.io`: the first byte of a message is
//! the number of its channel.

use std::{pin::pin, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{BoxStream, SplitSink, SplitStream},
};
use serde_json::Value;
use tokio::{
    io::AsyncWriteExt as _,
    time::{interval, timeout},
};

use crate::api::kubelet::{Resize, Session, SessionInput};

const RESIZE: u8 = 4;
/// Closes the channel that its only byte names; since version 5.
const CLOSE: u8 = 255;

/// Reveals clients that disappeared.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Time that a client has to close after the end of the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a session until the output ends or the client leaves.
pub(super) async fn run(socket: WebSocket, session: Session) {
    let (sink, stream) = socket.split();
    let mut receiving = pin!(receive(stream, session.inputs, session.resize));
    let sent = tokio::select! {
        () = &mut receiving => return,
        sent = send(sink, session.output) => sent,
    };
    if sent.is_ok() {
        // With unread input, closing would reset the connection before the client has read the end.
        let _ = timeout(CLOSE_TIMEOUT, receiving).await;
    }
}

async fn receive(
    mut stream: SplitStream<WebSocket>,
    mut inputs: Vec<Option<SessionInput>>,
    resize: Option<Resize>,
) {
    while let Some(Ok(message)) = stream.next().await {
        if !matches!(message, Message::Binary(_) | Message::Text(_)) {
            continue;
        }
        match (&message.into_data()[..], &resize) {
            ([RESIZE, size @ ..], Some(resize)) => {
                let size: Value = serde_json::from_slice(size).unwrap_or_default();
                let number = |field: &str| size[field].as_u64()?.try_into().ok();
                if let (Some(columns), Some(rows)) = (number("Width"), number("Height")) {
                    resize(columns, rows);
                }
            }
            ([CLOSE, channel], _) => close(&mut inputs, *channel),
            ([channel, data @ ..], _) => {
                if let Some(Some(input)) = inputs.get_mut(usize::from(*channel))
                    && input.write_all(data).await.is_err()
                {
                    close(&mut inputs, *channel);
                }
            }
            ([], _) => {}
        }
    }
}

fn close(inputs: &mut [Option<SessionInput>], channel: u8) {
    if let Some(input) = inputs.get_mut(usize::from(channel)) {
        *input = None;
    }
}

async fn send(
    mut sink: SplitSink<WebSocket, Message>,
    mut output: BoxStream<'static, (u8, Bytes)>,
) -> Result<(), axum::Error> {
    let mut pings = interval(PING_INTERVAL);
    loop {
        let message = tokio::select! {
            part = output.next() => match part {
                Some((channel, data)) => Message::Binary([&[channel], &data[..]].concat().into()),
                None => break,
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        sink.send(message).await?;
    }
    let (code, reason) = (close_code::NORMAL, "".into());
    sink.send(Message::Close(Some(CloseFrame { code, reason })))
        .await
}
