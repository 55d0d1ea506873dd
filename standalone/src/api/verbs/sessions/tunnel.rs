//! Port-forward over SPDY, as by `kubectl`. A forwarded connection has two streams of the client:
//! the first for an error of the server, the second for the data.

mod connection;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;

pub(super) use connection::Connect;

use super::spdy::{self, Frame, FrameReader};
use connection::{StreamPair, forward};

/// Reveals clients that disappeared.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of connections of a session, and of those that wait for their second stream.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of frames that wait for the client; each has at most 16 KiB.
const QUEUED_FRAMES: usize = 16;

/// Bytes of a connection that wait for the Pod, besides the buffers of the kernel. When they are
/// full, the whole session waits, because SPDY without flow control cannot stop one stream.
const UNSENT_BYTES: usize = 16 << 10;

/// Time after which a connection of which the Pod reads nothing is reset, so that the others go on.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Forwards ports until the client leaves or violates the protocol.
pub(super) async fn run(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite,
    connect: Arc<Connect>,
) {
    let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
    let mut tunnel = Tunnel {
        connect,
        frames,
        last_stream: 0,
        has_replied: false,
        requests: HashMap::new(),
        connections: HashMap::new(),
    };
    let output = pin!(output);
    // Both end for reasons of the client alone.
    let _ = tokio::select! {
        received = tunnel.receive(FrameReader::new(input)) => received,
        sent = send(output, queue) => sent,
    };
}

async fn send(
    mut output: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    let mut pings = interval(PING_INTERVAL);
    loop {
        let frame = tokio::select! {
            Some(frame) = queue.recv() => frame,
            _ = pings.tick() => spdy::ping(2),
        };
        output.write_all(&frame).await?;
        output.flush().await?;
    }
}

struct Tunnel {
    connect: Arc<Connect>,
    frames: mpsc::Sender<Bytes>,
    last_stream: u32,
    has_replied: bool,
    /// Error streams by request, until the data stream follows.
    requests: HashMap<String, u32>,
    /// Connections by data stream.
    connections: HashMap<u32, Connection>,
}

struct Connection {
    error_stream: u32,
    /// Takes data of the client until its end.
    input: Option<DuplexStream>,
    task: AbortOnDropHandle<()>,
}

impl Tunnel {
    async fn receive(&mut self, mut input: FrameReader<impl AsyncRead + Unpin>) -> io::Result<()> {
        loop {
            match input.next().await? {
                Frame::Open { stream, headers } => self.open(stream, headers).await?,
                Frame::Data {
                    stream,
                    data,
                    is_last,
                } => self.pass_on(stream, &data, is_last).await,
                Frame::Reset(stream) => self.close(stream).await,
                Frame::Ping(number) if number % 2 == 1 => self.send(spdy::ping(number)).await,
                Frame::GoAway => return Ok(()),
                Frame::Ping(_) | Frame::Other => {}
            }
        }
    }

    async fn open(&mut self, stream: u32, headers: HashMap<String, String>) -> io::Result<()> {
        if stream <= self.last_stream || stream.is_multiple_of(2) {
            return Err(ErrorKind::InvalidData.into());
        }
        self.last_stream = stream;
        if let Err(reason) = self.accept(stream, headers).await {
            self.send(spdy::reset(stream, reason)).await;
        }
        Ok(())
    }

    /// Accepts a stream; the error is the reason of a reset. As in the kubelet, each stream names a
    /// port, and both of a connection the same request.
    async fn accept(
        &mut self,
        stream: u32,
        mut headers: HashMap<String, String>,
    ) -> Result<(), u32> {
        self.connections
            .retain(|_, connection| !connection.task.is_finished());
        let mut header = |name| headers.remove(name).ok_or(spdy::PROTOCOL_ERROR);
        let (kind, port, request) = (header("streamtype")?, header("port")?, header("requestid")?);
        let port: u16 = port.parse().map_err(|_| spdy::PROTOCOL_ERROR)?;
        let waiting = self.requests.remove(&request);
        match (kind.as_str(), waiting) {
            _ if port == 0 => return Err(spdy::PROTOCOL_ERROR),
            ("error", None) if self.requests.len() < MAX_CONNECTIONS => {
                self.reply(stream).await;
                self.requests.insert(request, stream);
            }
            ("data", Some(_)) if self.connections.len() >= MAX_CONNECTIONS => {
                return Err(spdy::REFUSED_STREAM);
            }
            ("data", Some(error)) => {
                self.reply(stream).await;
                let pair = StreamPair {
                    error,
                    data: stream,
                };
                self.connections.insert(stream, self.start(pair, port));
            }
            ("error", None) => return Err(spdy::REFUSED_STREAM),
            _ => return Err(spdy::PROTOCOL_ERROR),
        }
        Ok(())
    }

    fn start(&self, streams: StreamPair, port: u16) -> Connection {
        let error_stream = streams.error;
        let (input, received) = duplex(UNSENT_BYTES);
        let forwarding = forward((self.connect)(port), received, streams, self.frames.clone());
        Connection {
            error_stream,
            input: Some(input),
            task: AbortOnDropHandle::new(tokio::spawn(forwarding)),
        }
    }

    /// Gives data to its connection. Late data of an ended connection is dropped.
    async fn pass_on(&mut self, stream: u32, data: &[u8], is_last: bool) {
        let Some(connection) = self.connections.get_mut(&stream) else {
            return;
        };
        let Some(input) = &mut connection.input else {
            return;
        };
        match timeout(STALL_TIMEOUT, input.write_all(data)).await {
            Ok(Ok(())) if !is_last => {}
            Ok(_) => connection.input = None,
            Err(_) => {
                self.send(spdy::reset(stream, spdy::CANCEL)).await;
                self.close(stream).await;
            }
        }
    }

    /// Ends a connection at once. The client still waits for the end of the error stream.
    async fn close(&mut self, stream: u32) {
        if let Some(connection) = self.connections.remove(&stream)
            && !connection.task.is_finished()
        {
            drop(connection.task);
            self.send(spdy::data(connection.error_stream, b"", true))
                .await;
        }
    }

    async fn reply(&mut self, stream: u32) {
        let is_first = !std::mem::replace(&mut self.has_replied, true);
        self.send(spdy::reply(stream, is_first)).await;
    }

    async fn send(&self, frame: Bytes) {
        // The queue lives as long as the session.
        let _ = self.frames.send(frame).await;
    }
}
