//! Response body: every frame of a watch updates its health, and any other body has a time limit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Sleep, sleep};
use tower::BoxError;

use super::request::ApiRequest;
use super::{MiddlewareError, RESPONSE_TIMEOUT, Verb};
use crate::diagnostics::Diagnostics;

/// Response body with its time limit.
pub(super) struct TrackedBody {
    inner: Body,
    request: ApiRequest,
    vitals: Arc<Diagnostics>,
    /// Time limit; none for a watch.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TrackedBody {
    pub(super) fn new(inner: Body, request: ApiRequest, vitals: Arc<Diagnostics>) -> Self {
        let has_limit = request.verb != Verb::Watch;
        Self {
            inner,
            request,
            vitals,
            deadline: has_limit.then(|| Box::pin(sleep(RESPONSE_TIMEOUT))),
        }
    }
}

impl http_body::Body for TrackedBody {
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
            return Poll::Ready(Some(Err(MiddlewareError::Timeout.into())));
        }
        if matches!(polled, Poll::Ready(Some(Ok(_)))) && self.request.is_list_or_watch() {
            self.vitals.health.watch_heard(self.request.resource);
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
