//! A client's connection as the HTTP server reads it. It holds its slot until it closes, tunnel or
//! not, and fails when a request head arrives too slowly.
//!
//! hyper's own header timeout includes the idle time before a head. It cannot tell a slow attacker
//! from a client that keeps its connection for the next request.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::in_flight::InFlightRequests;
use crate::client_memory::{CONNECTION_BYTES, HTTP2_CONNECTION_BYTES, MemoryPermit};
use crate::keyed_limit::KeyedPermit;
use crate::observed::{ObservedStream, StreamObserver};
use shared::metrics::GaugeGuard;

/// Timeout from the first byte of a request head to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of a head that the charge of its connection includes.
const SMALL_HEAD_BYTES: usize = 8 * 1024;
/// First bytes of every HTTP/2 connection; no HTTP/1.1 request begins with them.
const PREFACE: &[u8] = b"PRI ";

/// Time in which a client that is still sending may read its response and stop.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum that it may send meanwhile, and size of one read.
const MAX_LINGER_BYTES: usize = 64 << 20;
const READ_CHUNK_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(super) struct ClientObserver {
    in_flight: InFlightRequests,
    linger: Option<Linger>,
    version: DetectedProtocol,
    head: Option<RequestHead>,
    slot: ConnectionSlot,
}

/// Slot of an open connection with its memory, released when the connection closes.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) memory: MemoryPermit,
    /// Charge of what lies below HTTP.
    pub(super) transport_bytes: usize,
    pub(super) overloads: Counter,
    pub(super) address: KeyedPermit<IpAddr>,
    pub(super) _guards: (OwnedSemaphorePermit, GaugeGuard),
}

/// Lingering close: input of a client that is still sending is read and discarded for a while. A
/// close with unread bytes may reset the connection before the response (RFC 9112, section 9.6).
#[derive(Debug)]
struct Linger {
    limit: Pin<Box<Sleep>>,
    left: usize,
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
    /// The HTTP server bounds heads in size and number, and closes a connection without a request.
    Two,
}

impl ClientObserver {
    pub(super) fn observe<S>(
        stream: S,
        slot: ConnectionSlot,
        in_flight: InFlightRequests,
    ) -> ObservedStream<S, Self> {
        let observer = Self {
            in_flight,
            linger: None,
            version: DetectedProtocol::Undetermined(0),
            head: None,
            slot,
        };
        ObservedStream::new(stream, observer)
    }

    /// Fails when a head takes too long, or more memory than is left.
    fn check_input(&mut self, read: usize, cx: &mut Context<'_>) -> io::Result<()> {
        if self.version == DetectedProtocol::Two {
            self.head = None;
            let bytes = self.slot.transport_bytes + HTTP2_CONNECTION_BYTES;
            return self.slot.reserve(bytes);
        }
        let small = self.slot.transport_bytes + CONNECTION_BYTES;
        let generation = self.in_flight.generation();
        // A head of an earlier generation is complete.
        if self
            .head
            .as_ref()
            .is_some_and(|head| head.generation != generation)
        {
            self.head = None;
            self.slot.memory.shrink_to(small);
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
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Buffers double when they grow.
        let large = 2 * head.bytes.saturating_sub(SMALL_HEAD_BYTES);
        self.slot.reserve(small + large)
    }
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

impl ConnectionSlot {
    /// Takes more memory, up to `bytes`; fails if too little is left.
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        if self.memory.grow_to(bytes) {
            return Ok(());
        }
        self.overloads.inc();
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

impl Linger {
    fn begin() -> Self {
        Self {
            limit: Box::pin(sleep(LINGER_TIMEOUT)),
            left: MAX_LINGER_BYTES,
        }
    }

    /// Ready when the client has stopped sending or a limit is reached.
    fn poll(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        let mut chunk = [0; READ_CHUNK_BYTES];
        while self.left > 0 && self.limit.as_mut().poll(cx).is_pending() {
            let mut chunk = ReadBuf::new(&mut chunk);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut chunk));
            let count = chunk.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.left = self.left.saturating_sub(count);
        }
        Poll::Ready(())
    }
}

impl StreamObserver for ClientObserver {
    fn on_read(
        &mut self,
        cx: &mut Context<'_>,
        read: Poll<io::Result<()>>,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        self.version = self.version.after(bytes);
        self.check_input(bytes.len(), cx)?;
        read
    }

    fn poll_linger(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<()> {
        // HTTP/2 resets single streams.
        if self.version == DetectedProtocol::Two || !self.in_flight.left_unread() {
            return Poll::Ready(());
        }
        self.linger
            .get_or_insert_with(Linger::begin)
            .poll(cx, stream)
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
