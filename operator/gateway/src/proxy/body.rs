//! Request and response bodies. Both are pulled frame by frame, so that a slow reader slows its
//! writer and nothing is buffered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use futures::Future as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{ProxyError, RequestGuards, headers};
use crate::observed::{BodyObserver, PolledFrame};

/// A request body that a second connection may send if the first one has read none of it.
#[derive(Debug, Clone)]
pub(super) struct RetryableBody {
    /// Empty once an attempt has begun to read.
    slot: Arc<Mutex<Option<Body>>>,
    hint: SizeHint,
    is_empty: bool,
}

#[derive(Debug)]
pub(super) struct BodyAttempt {
    source: RetryableBody,
    taken: Option<Body>,
}

impl RetryableBody {
    pub(super) fn new(body: Body) -> Self {
        Self {
            hint: body.size_hint(),
            is_empty: body.is_end_stream(),
            slot: Arc::new(Mutex::new(Some(body))),
        }
    }

    pub(super) fn attempt(&self) -> BodyAttempt {
        BodyAttempt {
            source: self.clone(),
            taken: None,
        }
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.slot.lock().is_some()
    }
}

impl HttpBody for BodyAttempt {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        if self.taken.is_none() {
            let body = self.source.slot.lock().take();
            self.taken = body;
        }
        match &mut self.taken {
            Some(body) => Pin::new(body).poll_frame(cx).map_ok(filter_frame_trailers),
            None => Poll::Ready(Some(Err(axum::Error::new(ProxyError::ConnectionBroken)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.taken {
            Some(body) => body.is_end_stream(),
            None => self.source.is_empty,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.taken {
            Some(body) => body.size_hint(),
            None => self.source.hint,
        }
    }
}

/// Filters trailers like headers.
fn filter_frame_trailers(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        headers::filter_trailers(trailers);
    }
    frame
}

/// Fails a response body when its Pod is deleted: the address would stay silent forever.
#[derive(Debug)]
pub(super) struct ResponseObserver {
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    _guards: RequestGuards,
}

impl ResponseObserver {
    pub(super) fn new(gone: CancellationToken, guards: RequestGuards) -> Self {
        Self {
            _guards: guards,
            gone: Box::pin(gone.cancelled_owned()),
        }
    }
}

impl BodyObserver for ResponseObserver {
    fn on_read(&mut self, cx: &mut Context<'_>, read: PolledFrame) -> PolledFrame {
        // Received data is passed on first: the end of a response may come with the end of its Pod.
        if read.is_pending() && self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(ProxyError::PodGone))));
        }
        read.map_ok(filter_frame_trailers)
    }
}
