//! A client's connection as the HTTP server reads it. It holds its slot until it closes, tunnel or
//! not, and fails when a request head arrives too slowly.
//!
//! hyper's own header timeout includes the idle time before a head. It cannot tell a slow attacker
//! from a client that keeps its connection for the next request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connection_slots::ConnectionSlot;
use super::in_flight::InFlightRequests;
use super::linger::Linger;
use crate::client_memory::{CONNECTION_BYTES, HTTP2_CONNECTION_BYTES};

/// Timeout from the first byte of a request head to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of a head that the charge of its connection includes.
const SMALL_HEAD_BYTES: usize = 8 * 1024;
/// First bytes of every HTTP/2 connection; no HTTP/1.1 request begins with them.
const PREFACE: &[u8] = b"PRI ";
/// TCP keepalive: a client that vanished is noticed after two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// A connection of a client.
#[derive(Debug)]
pub(super) struct ClientStream {
    stream: TcpStream,
    in_flight: InFlightRequests,
    linger: Option<Linger>,
    version: DetectedProtocol,
    head: Option<RequestHead>,
    slot: ConnectionSlot,
}

/// An HTTP/1.1 head that is being read.
#[derive(Debug)]
struct RequestHead {
    generation: u64,
    timeout: Pin<Box<Sleep>>,
    bytes: usize,
}

/// Protocol version, detected from the first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetectedProtocol {
    /// Number of preface bytes that have been seen.
    Undetermined(usize),
    One,
    /// Heads are frames, bounded in size and number by the HTTP server. A connection without a
    /// request is closed as idle.
    Two,
}

impl ClientStream {
    pub(super) fn new(
        stream: TcpStream,
        slot: ConnectionSlot,
        in_flight: InFlightRequests,
    ) -> Self {
        prepare(&stream);
        Self {
            stream,
            in_flight,
            linger: None,
            version: DetectedProtocol::Undetermined(0),
            head: None,
            slot,
        }
    }

    /// Fails when a head takes too long, or more memory than is left.
    fn check_input(&mut self, read: usize, cx: &mut Context<'_>) -> io::Result<()> {
        if self.version == DetectedProtocol::Two {
            self.head = None;
            return self.slot.reserve(HTTP2_CONNECTION_BYTES);
        }
        let generation = self.in_flight.generation();
        // A head of an earlier generation is complete.
        if self
            .head
            .as_ref()
            .is_some_and(|head| head.generation != generation)
        {
            self.head = None;
            self.slot.release_to(CONNECTION_BYTES);
        }
        if read > 0 && self.head.is_none() && !self.in_flight.is_active() {
            self.head = Some(RequestHead {
                generation,
                timeout: Box::pin(sleep(HEAD_TIMEOUT)),
                bytes: 0,
            });
        }
        let Some(head) = &mut self.head else {
            return Ok(());
        };
        head.bytes += read;
        if head.timeout.as_mut().poll(cx).is_ready() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        // Buffers double when they grow.
        let large = 2 * head.bytes.saturating_sub(SMALL_HEAD_BYTES);
        self.slot.reserve(CONNECTION_BYTES + large)
    }
}

/// Sets socket options; the connection works without them.
fn prepare(stream: &TcpStream) {
    // Without it, small responses wait for the acknowledgement of the client.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
}

impl DetectedProtocol {
    fn after(self, bytes: &[u8]) -> Self {
        let Self::Undetermined(seen) = self else {
            return self;
        };
        let expected = PREFACE.get(seen..).unwrap_or_default();
        let common = expected.len().min(bytes.len());
        match (expected[..common] == bytes[..common], seen + common) {
            (false, _) => Self::One,
            (true, all) if all == PREFACE.len() => Self::Two,
            (true, some) => Self::Undetermined(some),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let new = &buf.filled()[before..];
        self.version = self.version.after(new);
        self.check_input(new.len(), cx)?;
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            stream,
            linger,
            version,
            in_flight,
            ..
        } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            // HTTP/2 resets single streams.
            if *version == DetectedProtocol::Two || !in_flight.left_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = linger.get_or_insert_with(Linger::begin);
        linger.poll(stream, cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_protocol_from_first_bytes() {
        let after = |pieces: &[&str]| {
            let fold = |version: DetectedProtocol, piece: &&str| version.after(piece.as_bytes());
            pieces.iter().fold(DetectedProtocol::Undetermined(0), fold)
        };
        assert_eq!(after(&["PRI * HTTP/2.0\r\n"]), DetectedProtocol::Two);
        assert_eq!(after(&["P", "R", "", "I ", "GET"]), DetectedProtocol::Two);
        assert_eq!(after(&["P", "OST /"]), DetectedProtocol::One);
        assert_eq!(after(&["GET / HTTP/1.1", "PRI "]), DetectedProtocol::One);
        assert_eq!(after(&["PR"]), DetectedProtocol::Undetermined(2));
    }
}
