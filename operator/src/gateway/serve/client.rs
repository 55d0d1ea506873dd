//! A client's connection as the HTTP server reads it: it holds its slot until the last byte, tunnel
//! or not, and breaks when a request head comes in too slowly.
//!
//! hyper's own limit for heads also counts the idle time before them, so it cannot tell a slow
//! attacker from a client that keeps its connection for the next request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::exchanges::Exchanges;
use super::linger::Linger;
use super::slot::Slot;

/// Longest time from the first byte of a head to its last.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How every HTTP/2 connection begins, as far as no request of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI ";
/// A silent client is asked for a sign of life after so long, and then every few seconds. One that
/// is gone without a word is missed two minutes after its last one.
const KEEPALIVE_AFTER: Duration = Duration::from_mins(1);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

/// The connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    exchanges: Exchanges,
    linger: Option<Linger>,
    version: Version,
    /// The turn of a head and its limit.
    head: Option<(u64, Pin<Box<Sleep>>)>,
    _slot: Slot,
}

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// So many bytes of the preface have been seen.
    Unclear(usize),
    One,
    /// Heads are frames among others there. The server bounds how large and how many they are, and
    /// a connection without a request ends as idle.
    Two,
}

impl Client {
    pub(super) fn new(stream: TcpStream, slot: Slot, exchanges: Exchanges) -> Self {
        prepare(&stream);
        Self {
            stream,
            exchanges,
            linger: None,
            version: Version::Unclear(0),
            head: None,
            _slot: slot,
        }
    }

    /// Breaks off a head that takes too long.
    fn watch_head(&mut self, read: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let turn = self.exchanges.turn();
        // A limit of an earlier turn was met: its request is under way or over.
        self.head = self.head.take().filter(|(begun, _)| *begun == turn);
        if self.version == Version::Two {
            self.head = None;
        } else if read > 0 && self.head.is_none() && !self.exchanges.any() {
            self.head = Some((turn, Box::pin(sleep(HEAD_LIMIT))));
        }
        let head = self.head.as_mut();
        if head.is_some_and(|(_, limit)| limit.as_mut().poll(cx).is_ready()) {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        Ok(())
    }
}

/// Settings that only make a connection better; it works without.
fn prepare(stream: &TcpStream) {
    // Without it small answers wait for the client's acknowledgement.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES);
}

impl Version {
    fn after(self, bytes: &[u8]) -> Self {
        let Self::Unclear(seen) = self else {
            return self;
        };
        let expected = PREFACE.get(seen..).unwrap_or_default();
        let common = expected.len().min(bytes.len());
        match (expected[..common] == bytes[..common], seen + common) {
            (false, _) => Self::One,
            (true, all) if all == PREFACE.len() => Self::Two,
            (true, some) => Self::Unclear(some),
        }
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let new = &buf.filled()[before..];
        self.version = self.version.after(new);
        self.watch_head(new.len(), cx)?;
        read
    }
}

impl AsyncWrite for Client {
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
            exchanges,
            ..
        } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            // Streams of HTTP/2 are refused one by one.
            if *version == Version::Two || !exchanges.left_unread() {
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
    fn the_first_bytes_tell_the_version() {
        let after = |pieces: &[&str]| {
            let fold = |version: Version, piece: &&str| version.after(piece.as_bytes());
            pieces.iter().fold(Version::Unclear(0), fold)
        };
        assert_eq!(after(&["PRI * HTTP/2.0\r\n"]), Version::Two);
        assert_eq!(after(&["P", "R", "", "I ", "GET"]), Version::Two);
        assert_eq!(after(&["P", "OST /"]), Version::One);
        assert_eq!(after(&["GET / HTTP/1.1", "PRI "]), Version::One);
        assert_eq!(after(&["PR"]), Version::Unclear(2));
    }
}
