//! Calls that change something end, also if their client has gone.

use std::panic::resume_unwind;

use axum::body::Body;
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use http::{Request, Response};
use tracing::Instrument as _;

use super::ApiError;
use crate::sandboxes::SandboxError;

/// Runs a call that may change something in a task of its own: a client that closes its connection in
/// the middle must not leave a change without its audit line. Every such call has a time limit.
pub(super) async fn complete(request: Request<Body>, next: Next) -> Response<Body> {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let answer = tokio::spawn(next.run(request).in_current_span());
    match answer.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(response) => response,
        Err(Ok(panic)) => resume_unwind(panic),
        // The process ends.
        Err(Err(_)) => ApiError::from(SandboxError::Timeout).into_response(),
    }
}
