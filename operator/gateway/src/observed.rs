//! Bodies and connections with an observer, which sees what passes and is dropped at the end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::BoxError;

pub(crate) type PolledFrame = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

pub(crate) trait BodyObserver: Unpin {
    /// Passes the result of a read on.
    fn on_read(&mut self, _: &mut Context<'_>, read: PolledFrame) -> PolledFrame {
        read
    }

    fn on_end(&mut self, _is_complete: bool) {}
}

#[derive(Debug)]
pub(crate) struct ObservedBody<B: Body, O: BodyObserver> {
    body: B,
    observer: O,
}

impl<B: Body, O: BodyObserver> ObservedBody<B, O> {
    pub(crate) fn new(body: B, observer: O) -> Self {
        Self { body, observer }
    }
}

impl<B, O: BodyObserver> Body for ObservedBody<B, O>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let read = Pin::new(&mut self.body).poll_frame(cx);
        self.observer.on_read(cx, read.map_err(axum::Error::new))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body, O: BodyObserver> Drop for ObservedBody<B, O> {
    fn drop(&mut self) {
        self.observer.on_end(self.body.is_end_stream());
    }
}

pub(crate) trait StreamObserver: Unpin {
    /// Passes the result of a read of these bytes on.
    fn on_read(
        &mut self,
        cx: &mut Context<'_>,
        read: Poll<io::Result<()>>,
        bytes: &[u8],
    ) -> Poll<io::Result<()>>;

    /// Delays the end of a connection that has been shut down.
    fn poll_linger(&mut self, _: &mut Context<'_>, _: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        Poll::Ready(())
    }
}

#[derive(Debug)]
pub(crate) struct ObservedStream<S, O> {
    stream: S,
    observer: O,
    is_shut_down: bool,
}

impl<S, O> ObservedStream<S, O> {
    pub(crate) fn new(stream: S, observer: O) -> Self {
        Self {
            stream,
            observer,
            is_shut_down: false,
        }
    }
}

impl<S: AsyncRead + Unpin, O: StreamObserver> AsyncRead for ObservedStream<S, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.observer.on_read(cx, read, &buf.filled()[before..])
    }
}

impl<S, O: StreamObserver> AsyncWrite for ObservedStream<S, O>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
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
        let this = &mut *self;
        if !this.is_shut_down {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.is_shut_down = true;
        }
        this.observer.poll_linger(cx, &mut this.stream).map(Ok)
    }
}

impl<S: Connection, O> Connection for ObservedStream<S, O> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
