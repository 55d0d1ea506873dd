//! Headers that tell clients of the rate limit before they run into it: `RateLimit-Limit`,
//! `RateLimit-Remaining` and `RateLimit-Reset`, as in `draft-ietf-httpapi-ratelimit-headers-06`.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::middleware::Next;
use http::request::Parts;
use http::{HeaderName, Request, Response};
use shared::tenants::CallBudget;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Place for the budget of a call that is counted, an extension of every request.
#[derive(Debug, Clone, Default)]
struct BudgetCell(Arc<OnceLock<CallBudget>>);

/// Records the budget that a call has left.
pub(super) fn record(parts: &Parts, budget: Option<CallBudget>) {
    if let (Some(BudgetCell(cell)), Some(budget)) = (parts.extensions.get(), budget) {
        // A request is counted once.
        let _ = cell.set(budget);
    }
}

/// Adds the headers to the response of a call that was counted.
pub(super) async fn add_headers(mut request: Request<Body>, next: Next) -> Response<Body> {
    let cell = BudgetCell::default();
    request.extensions_mut().insert(cell.clone());
    let mut response = next.run(request).await;
    if let Some(budget) = cell.0.get() {
        let seconds = budget.full_after.as_millis().div_ceil(1000);
        let headers = response.headers_mut();
        headers.insert(LIMIT, budget.limit.into());
        headers.insert(REMAINING, budget.remaining.into());
        headers.insert(RESET, u64::try_from(seconds).unwrap_or(u64::MAX).into());
    }
    response
}
