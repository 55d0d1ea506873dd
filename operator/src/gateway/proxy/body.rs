//! Bodies on their way through. Both are pulled frame by frame, so a slow reader slows its writer
//! and nothing is ever buffered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use futures::Future as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::passage::Passage;
use super::share::Share;
use super::{ProxyError, headers};

/// The body of a request before it is sent. It can be offered to a second connection as long as the
/// first one has not taken any of it: nothing is ever sent twice.
#[derive(Debug, Clone)]
pub(super) struct Unsent {
    /// Empty once somebody has begun to read.
    slot: Arc<Mutex<Option<Body>>>,
    hint: SizeHint,
    is_empty: bool,
}

/// One offer of an [`Unsent`] body.
#[derive(Debug)]
pub(super) struct Offer {
    unsent: Unsent,
    taken: Option<Body>,
}

impl Unsent {
    pub(super) fn new(body: Body) -> Self {
        Self {
            hint: body.size_hint(),
            is_empty: body.is_end_stream(),
            slot: Arc::new(Mutex::new(Some(body))),
        }
    }

    pub(super) fn share(&self) -> Offer {
        Offer {
            unsent: self.clone(),
            taken: None,
        }
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.slot.lock().is_some()
    }
}

impl HttpBody for Offer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.taken.is_none() {
            let body = self.unsent.slot.lock().take();
            self.taken = body;
        }
        match &mut self.taken {
            Some(body) => Pin::new(body).poll_frame(cx).map_ok(clean),
            None => Poll::Ready(Some(Err(axum::Error::new(ProxyError::Broken)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.taken {
            Some(body) => body.is_end_stream(),
            None => self.unsent.is_empty,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.taken {
            Some(body) => body.size_hint(),
            None => self.unsent.hint,
        }
    }
}

/// Trailers are headers, and what may not pass among those may not pass here.
fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        headers::in_trailers(trailers);
    }
    frame
}

/// The body of an answer. It breaks off when the Pod that sends it is gone, whose address would
/// otherwise be silent for ever.
#[derive(Debug)]
pub(super) struct Streamed {
    body: Incoming,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    _passage: (Passage, Share),
}

impl Streamed {
    pub(super) fn new(body: Incoming, gone: CancellationToken, passage: (Passage, Share)) -> Self {
        Self {
            body,
            _passage: passage,
            gone: Box::pin(gone.cancelled_owned()),
        }
    }
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // What has arrived is passed on first: the end of an answer may come with the end of its Pod.
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() && self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(ProxyError::WentAway))));
        }
        frame.map_ok(clean).map_err(axum::Error::new)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
