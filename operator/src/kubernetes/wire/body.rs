//! The body of an answer: each piece of a watch is a sign of life, and anything else has to come
//! in time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Sleep, sleep};
use tower::BoxError;

use super::request::Asked;
use super::{LONGEST, Verb, WireError};
use crate::vitals::Vitals;

/// A body on its way in.
pub(super) struct WireBody {
    inner: Body,
    asked: Asked,
    vitals: Arc<Vitals>,
    /// When it has to be complete; never for a watch.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl WireBody {
    pub(super) fn new(inner: Body, asked: Asked, vitals: Arc<Vitals>) -> Self {
        let ends = asked.verb != Verb::Watch;
        Self {
            inner,
            asked,
            vitals,
            deadline: ends.then(|| Box::pin(sleep(LONGEST))),
        }
    }
}

impl http_body::Body for WireBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_pending()
            && let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(WireError::Timeout.into())));
        }
        if matches!(polled, Poll::Ready(Some(Ok(_)))) && self.asked.follows() {
            self.vitals.health.heard(self.asked.resource);
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
