//! Request bodies that are read into memory. Large ones share a budget, so that concurrent requests
//! cannot use up the memory of the sandbox.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::detail;

/// Bodies up to this size are not counted.
const SMALL_BYTES: usize = 64 << 10;
/// Bytes of all large bodies of this process.
const BUDGET_BYTES: usize = 256 << 20;
const BUDGET_TIMEOUT: Duration = Duration::from_secs(30);
const RECEIVE_TIMEOUT: Duration = Duration::from_mins(5);

/// Free KiB of the budget.
static BUDGET: Semaphore = Semaphore::const_new(BUDGET_BYTES >> 10);

/// Part of the budget, held for as long as the content of a body is used.
#[derive(Debug)]
pub(super) struct BudgetPermit(
    #[expect(dead_code, reason = "a guard")] Option<SemaphorePermit<'static>>,
);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReceiveError {
    #[error("The request is too large or broken off")]
    TooLarge,
    #[error("The request was not received in time")]
    Timeout,
    #[error("Too many large requests")]
    Busy,
}

/// Receives a body of at most `limit` bytes, which must not exceed the budget.
pub(super) async fn receive(
    body: Body,
    limit: usize,
) -> Result<(Bytes, BudgetPermit), ReceiveError> {
    // Without a length, the body may become as large as the limit.
    let size = body.size_hint().exact().unwrap_or(limit as u64);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > limit {
        return Err(ReceiveError::TooLarge);
    }
    let budget = match size {
        ..=SMALL_BYTES => None,
        _ => Some(acquire(size).await?),
    };
    let received = timeout(RECEIVE_TIMEOUT, axum::body::to_bytes(body, limit));
    let received = received.await.map_err(|_| ReceiveError::Timeout)?;
    let bytes = received.map_err(|_| ReceiveError::TooLarge)?;
    Ok((bytes, BudgetPermit(budget)))
}

/// Receives a body of JSON; `None` if it cannot be received or parsed.
pub(super) async fn receive_json(body: Body, limit: usize) -> Option<(Value, BudgetPermit)> {
    let (body, budget) = receive(body, limit).await.ok()?;
    Some((serde_json::from_slice(&body).ok()?, budget))
}

async fn acquire(bytes: usize) -> Result<SemaphorePermit<'static>, ReceiveError> {
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    let permit = timeout(BUDGET_TIMEOUT, BUDGET.acquire_many(kib)).await;
    permit.ok().and_then(Result::ok).ok_or(ReceiveError::Busy)
}

impl IntoResponse for ReceiveError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
        };
        detail(status, &self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that never arrives.
    fn pending(size: Option<usize>) -> Body {
        Body::new(PendingBody(size))
    }

    struct PendingBody(Option<usize>);

    impl http_body::Body for PendingBody {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Pending
        }

        fn size_hint(&self) -> http_body::SizeHint {
            let exact = |size| http_body::SizeHint::with_exact(size as u64);
            self.0.map_or_else(http_body::SizeHint::new, exact)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_share_the_budget() {
        let limit = BUDGET_BYTES;
        let stalled = tokio::spawn(receive(pending(None), limit));
        tokio::task::yield_now().await;
        let large = receive(pending(Some(SMALL_BYTES + 1)), limit);
        assert_eq!(large.await.unwrap_err(), ReceiveError::Busy);
        let small = receive(Body::from(vec![0; SMALL_BYTES]), limit).await;
        assert_eq!(small.unwrap().0.len(), SMALL_BYTES);
        assert_eq!(stalled.await.unwrap().unwrap_err(), ReceiveError::Timeout);
        let large = receive(Body::from(vec![0; SMALL_BYTES + 1]), limit).await;
        assert_eq!(large.unwrap().0.len(), SMALL_BYTES + 1);
        let larger = receive(pending(Some(limit + 1)), limit);
        assert_eq!(larger.await.unwrap_err(), ReceiveError::TooLarge);
    }
}
