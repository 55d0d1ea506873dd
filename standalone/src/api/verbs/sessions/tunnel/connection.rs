//! One forwarded connection: bytes of its data stream to the Pod and back.

use std::io;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt as _, DuplexStream, copy},
    net::TcpStream,
    sync::mpsc::Sender,
    try_join,
};

use super::spdy;

/// Connects to a port; the error is for the user.
pub(in super::super) type Connect =
    dyn Fn(u16) -> BoxFuture<'static, Result<TcpStream, String>> + Send + Sync;

const BUFFER_BYTES: usize = 16 << 10;

pub(super) struct StreamPair {
    pub(super) error: u32,
    pub(super) data: u32,
}

/// Connects and carries data both ways until both sides have ended or one fails. Only a failure to
/// connect is reported: kubectl gives up all connections at any text on an error stream.
pub(super) async fn forward(
    connecting: BoxFuture<'static, Result<TcpStream, String>>,
    input: DuplexStream,
    streams: StreamPair,
    frames: Sender<Bytes>,
) {
    let is_complete = match connecting.await {
        Ok(pod) => carry(pod, input, streams.data, &frames).await.is_ok(),
        Err(message) => {
            let message = spdy::data(streams.error, message.as_bytes(), false);
            let _ = frames.send(message).await;
            false
        }
    };
    if !is_complete {
        let _ = frames.send(spdy::reset(streams.data, spdy::CANCEL)).await;
    }
    let _ = frames.send(spdy::data(streams.error, b"", true)).await;
}

async fn carry(
    pod: TcpStream,
    mut input: DuplexStream,
    stream: u32,
    frames: &Sender<Bytes>,
) -> io::Result<()> {
    let (mut reader, mut writer) = pod.into_split();
    let sending = async move {
        // A Pod that reads no more may still send. Dropping the writer ends its input.
        let _ = copy(&mut input, &mut writer).await;
        Ok(())
    };
    let receiving = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = reader.read(&mut buffer).await?;
            let is_last = length == 0;
            let frame = spdy::data(stream, &buffer[..length], is_last);
            frames.send(frame).await.map_err(io::Error::other)?;
            if is_last {
                return Ok(());
            }
        }
    };
    try_join!(sending, receiving).map(drop)
}
