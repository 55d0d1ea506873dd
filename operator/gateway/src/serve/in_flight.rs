//! In-flight requests of one connection: HTTP/2 has many at once, HTTP/1.1 one after the other. A
//! tunnel stays in flight until it closes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::client_memory::MemoryPermit;
use crate::events::ResponseAbort;
use crate::observed::{BodyObserver, ObservedBody, PolledFrame};

/// Interval and number of consecutive checks after which a connection is idle. Clients keep theirs
/// for 5 seconds by default, ingress controllers for a minute.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
const IDLE_CHECKS: u32 = 3;
/// A connection ends when its client has reset so many requests, and most of all, without a response.
const MAX_RESETS: u64 = 256;

#[derive(Debug, Clone)]
pub(super) struct InFlightRequests(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    /// Incremented at the start and at the end of every request.
    generation: AtomicU64,
    /// Milliseconds from `created` to the last start or end of a request.
    changed_at: AtomicU64,
    created: Instant,
    /// Requests that have begun, and those of HTTP/2 that the client reset before their end.
    begun: AtomicU64,
    reset: AtomicU64,
    /// Cancelled when the client resets too many requests, or of HTTP/1 reads no event stream.
    aborted: CancellationToken,
    open: AtomicUsize,
    /// True if the last request body was not read to its end.
    unread: AtomicBool,
}

/// One in-flight request; dropped at the end of its response.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    /// `None` for a tunnel, which stays in flight.
    requests: Option<InFlightRequests>,
    has_response: bool,
}

/// A response body that keeps its request in flight.
pub(super) type TrackedResponse = ObservedBody<Body, (InFlightRequest, Option<MemoryPermit>)>;

/// Observer of a request body that notes whether it was read to its end.
#[derive(Debug)]
struct UnreadWatch {
    in_flight: InFlightRequests,
    has_ended: bool,
}

impl Default for InFlightRequests {
    fn default() -> Self {
        Self(Arc::new(ConnectionState {
            generation: AtomicU64::default(),
            changed_at: AtomicU64::default(),
            created: Instant::now(),
            begun: AtomicU64::default(),
            reset: AtomicU64::default(),
            aborted: CancellationToken::new(),
            open: AtomicUsize::default(),
            unread: AtomicBool::default(),
        }))
    }
}

impl ConnectionState {
    fn change(&self) {
        let now = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.changed_at.store(now, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a request that ended before its response had begun.
    fn note_reset(&self) {
        let reset = self.reset.fetch_add(1, Ordering::Relaxed) + 1;
        if reset >= MAX_RESETS && 2 * reset > self.begun.load(Ordering::Relaxed) {
            self.aborted.cancel();
        }
    }
}

impl InFlightRequests {
    pub(super) fn begin(&self) -> InFlightRequest {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.change();
        InFlightRequest {
            requests: Some(self.clone()),
            has_response: false,
        }
    }

    /// Time without a request; `None` while one is in flight.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let changed_at = Duration::from_millis(self.0.changed_at.load(Ordering::Relaxed));
        let idle = self.0.created.elapsed().saturating_sub(changed_at);
        (!self.is_active()).then_some(idle)
    }

    /// Token that closes the connection at once.
    pub(super) fn aborted(&self) -> &CancellationToken {
        &self.0.aborted
    }

    /// Changes at every start and end of a request.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }

    pub(super) fn is_active(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// Wraps a request body, to notice when it is dropped before its end.
    pub(super) fn watch(&self, body: Incoming) -> Body {
        self.0.unread.store(false, Ordering::Relaxed);
        if body.is_end_stream() {
            return Body::new(body);
        }
        let watch = UnreadWatch {
            in_flight: self.clone(),
            has_ended: false,
        };
        Body::new(ObservedBody::new(body, watch))
    }

    /// True if the client may still be sending a body that is no longer read.
    pub(super) fn left_unread(&self) -> bool {
        self.0.unread.load(Ordering::Relaxed)
    }

    pub(super) async fn idle(&self) {
        let (mut known, mut checks) = (self.generation(), 0);
        while checks < IDLE_CHECKS {
            sleep(IDLE_CHECK_INTERVAL).await;
            let generation = self.generation();
            let idle = generation == known && !self.is_active();
            checks = if idle { checks + 1 } else { 0 };
            known = generation;
        }
    }
}

impl InFlightRequest {
    /// Lets the connection be closed from outside.
    pub(super) fn link(&self, abort: &ResponseAbort) {
        if let Some(requests) = &self.requests {
            abort.link(requests.aborted());
        }
    }

    /// Keeps the request (of `version`) in flight until its response ends, a tunnel for good.
    pub(super) fn until_response_end(
        mut self,
        version: Version,
        mut response: Response<Body>,
        memory: Option<MemoryPermit>,
    ) -> Response<TrackedResponse> {
        self.has_response = true;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.requests = None;
        }
        let unread = self
            .requests
            .as_ref()
            .is_some_and(InFlightRequests::left_unread);
        if unread && version < Version::HTTP_2 {
            // The connection will be closed; the client must not send its next request on it.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| ObservedBody::new(body, (self, memory)))
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if let Some(InFlightRequests(state)) = &self.requests {
            state.open.fetch_sub(1, Ordering::Relaxed);
            state.change();
            if !self.has_response {
                state.note_reset();
            }
        }
    }
}

impl BodyObserver for (InFlightRequest, Option<MemoryPermit>) {}

impl BodyObserver for UnreadWatch {
    fn on_read(&mut self, _: &mut Context<'_>, read: PolledFrame) -> PolledFrame {
        self.has_ended |= matches!(read, Poll::Ready(None));
        read
    }

    fn on_end(&mut self, is_complete: bool) {
        if !self.has_ended && !is_complete {
            self.in_flight.0.unread.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_after_consecutive_checks_without_request() {
        let (in_flight, start) = (InFlightRequests::default(), Instant::now());
        in_flight.idle().await;
        assert_eq!(start.elapsed(), IDLE_CHECK_INTERVAL * IDLE_CHECKS);
        let request = in_flight.begin();
        let idle = in_flight.idle();
        tokio::pin!(idle);
        let hours = Duration::from_hours(5);
        assert!(tokio::time::timeout(hours, &mut idle).await.is_err());
        drop(request);
        let start = Instant::now();
        idle.await;
        assert!(start.elapsed() >= IDLE_CHECK_INTERVAL * IDLE_CHECKS);
        // A short request between two checks counts as activity too.
        let idle = in_flight.idle();
        tokio::pin!(idle);
        for _ in 0..9 {
            assert!(
                tokio::time::timeout(IDLE_CHECK_INTERVAL, &mut idle)
                    .await
                    .is_err()
            );
            advance(Duration::from_secs(1)).await;
            drop(in_flight.begin());
        }
    }
}
