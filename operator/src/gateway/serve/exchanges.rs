//! What is under way on one connection. HTTP/2 has many requests at once, HTTP/1.1 one after the
//! other; what has become a tunnel stays under way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::sleep;

/// How often an idle connection is looked at, and how many times in a row before it is one. Clients
/// keep theirs for 5 seconds by default, ingress controllers for a minute.
const LOOK: Duration = Duration::from_secs(30);
const LOOKS: u32 = 3;

/// All exchanges of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchanges(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Counted up at the beginning and at the end of every exchange.
    turn: AtomicU64,
    open: AtomicUsize,
    /// The last body that began was not read to its end.
    unread: AtomicBool,
}

/// One exchange; dropped when the last of its answer is.
#[derive(Debug)]
pub(super) struct Exchange(Option<Exchanges>);

/// The body of a request that has one.
#[derive(Debug)]
struct Question {
    body: Incoming,
    exchanges: Exchanges,
    has_ended: bool,
}

impl Exchanges {
    pub(super) fn begin(&self) -> Exchange {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.turn.fetch_add(1, Ordering::Relaxed);
        Exchange(Some(self.clone()))
    }

    /// Changes with every beginning and end.
    pub(super) fn turn(&self) -> u64 {
        self.0.turn.load(Ordering::Relaxed)
    }

    /// Whether anything is under way.
    pub(super) fn any(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// The body of a request, which is missed if nobody reads all of it.
    pub(super) fn watch(&self, body: Incoming) -> Body {
        self.0.unread.store(false, Ordering::Relaxed);
        if body.is_end_stream() {
            return Body::new(body);
        }
        Body::new(Question {
            body,
            exchanges: self.clone(),
            has_ended: false,
        })
    }

    /// Whether the client may still be sending a body that nobody reads.
    pub(super) fn left_unread(&self) -> bool {
        self.0.unread.load(Ordering::Relaxed)
    }

    /// Ends when nothing has been under way for long.
    pub(super) async fn idle(&self) {
        let (mut known, mut looks) = (self.turn(), 0);
        while looks < LOOKS {
            sleep(LOOK).await;
            let turn = self.turn();
            let idle = turn == known && !self.any();
            looks = if idle { looks + 1 } else { 0 };
            known = turn;
        }
    }
}

impl Exchange {
    /// Lets the end of the answer be the end of the exchange. What has become a tunnel has none here.
    /// `version` is that of the request.
    pub(super) fn until_end_of(
        mut self,
        version: Version,
        mut response: Response<Body>,
    ) -> Response<impl HttpBody<Data = Bytes, Error = axum::Error> + use<>> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0 = None;
        }
        let unread = self.0.as_ref().is_some_and(Exchanges::left_unread);
        if unread && version < Version::HTTP_2 {
            // It is closed in any case, and the client could take it for the next request.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| {
            body.map_err(move |error| {
                // Held until the body is dropped.
                let _exchange = &self;
                error
            })
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(Exchanges(state)) = &self.0 {
            state.open.fetch_sub(1, Ordering::Relaxed);
            state.turn.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HttpBody for Question {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.has_ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.has_ended && !self.body.is_end_stream() {
            self.exchanges.0.unread.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_was_under_way_for_long() {
        let (exchanges, start) = (Exchanges::default(), Instant::now());
        exchanges.idle().await;
        assert_eq!(start.elapsed(), LOOK * LOOKS);
        let exchange = exchanges.begin();
        let idle = exchanges.idle();
        tokio::pin!(idle);
        let hours = Duration::from_hours(5);
        assert!(tokio::time::timeout(hours, &mut idle).await.is_err());
        drop(exchange);
        let start = Instant::now();
        idle.await;
        assert!(start.elapsed() >= LOOK * LOOKS);
        // One short exchange between two looks counts as well.
        let idle = exchanges.idle();
        tokio::pin!(idle);
        for _ in 0..9 {
            assert!(tokio::time::timeout(LOOK, &mut idle).await.is_err());
            advance(Duration::from_secs(1)).await;
            drop(exchanges.begin());
        }
    }
}
