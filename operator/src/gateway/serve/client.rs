//! A client's connection as the HTTP server reads it: it holds its slot until the last byte, tunnel
//! or not, and breaks when a request head comes in too slowly.
//!
//! hyper's own limit for heads also counts the idle time before them, so it cannot tell a slow
//! attacker from a client that keeps its connection for the next request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

/// Longest time from the first byte of a head to its last.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// The connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    busy: Busy,
    /// The turn of a head and its limit.
    head: Option<(u64, Pin<Box<Sleep>>)>,
    _slot: OwnedSemaphorePermit,
}

/// Whose turn it is: counted up at the beginning and at the end of every answer. In an even turn,
/// what comes in is a head.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicU64>);

/// The body of an answer; its end is the end of being busy.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    busy: Option<Busy>,
}

impl Client {
    pub(super) fn new(stream: TcpStream, slot: OwnedSemaphorePermit, busy: Busy) -> Self {
        Self {
            stream,
            busy,
            head: None,
            _slot: slot,
        }
    }

    /// Breaks off a head that takes too long.
    fn watch_head(&mut self, read: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let turn = self.busy.turn();
        // A limit of an earlier turn was met: its request is under way or over.
        self.head = self.head.take().filter(|(begun, _)| *begun == turn);
        if read > 0 && self.head.is_none() && !is_busy(turn) {
            self.head = Some((turn, Box::pin(sleep(HEAD_LIMIT))));
        }
        let head = self.head.as_mut();
        if head.is_some_and(|(_, limit)| limit.as_mut().poll(cx).is_ready()) {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        Ok(())
    }
}

/// Whether a turn is that of the server.
fn is_busy(turn: u64) -> bool {
    turn % 2 == 1
}

impl Busy {
    pub(super) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the end of the answer be the end of being busy. What has become a tunnel stays so.
    pub(super) fn until_end_of(self, response: Response<Body>) -> Response<Answer> {
        let busy = (response.status() != StatusCode::SWITCHING_PROTOCOLS).then_some(self);
        response.map(|body| Answer { body, busy })
    }

    fn turn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(busy) = &self.busy {
            busy.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
        self.watch_head(buf.filled().len() - before, cx)?;
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
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
