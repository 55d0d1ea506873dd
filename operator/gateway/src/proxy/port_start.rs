//! Requests to a port that does not accept connections yet. Readiness does not cover every port: a
//! command without `spec.ports` is ready as soon as it runs, and its server listens a moment later.

use std::time::Duration;

use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::body::RetryableBody;
use super::{Proxy, ProxyError, Route, UpstreamResponse};
use shared::index::Entry;

/// Time after readiness in which refused connections are retried.
const PORT_START_WINDOW: Duration = Duration::from_secs(10);
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(250);

impl Proxy {
    /// Sends a request again while its port may still be starting. It was not sent before: the
    /// connection was refused.
    pub(super) async fn retry_until_port_listens(
        &self,
        route: &Route,
        entry: &Entry,
        parts: &Parts,
        body: &RetryableBody,
    ) -> Result<UpstreamResponse, ProxyError> {
        let (start, mut backoff) = (Instant::now(), INITIAL_BACKOFF);
        let _slot = self.acquire_hold_slot()?;
        while start.elapsed() < PORT_START_WINDOW && is_recent_start(entry, Timestamp::now()) {
            if self.has_changed_within(entry, backoff).await {
                break;
            }
            match self.send_to(route, entry, parts, body).await {
                Err(ProxyError::Unreachable) => backoff = (backoff * 2).min(MAX_BACKOFF),
                done => return done,
            }
        }
        Err(ProxyError::Unreachable)
    }
}

/// Returns whether the sandbox became ready a moment ago. The clock of the controller may be ahead.
fn is_recent_start(entry: &Entry, now: Timestamp) -> bool {
    let window = SignedDuration::try_from(PORT_START_WINDOW).unwrap_or(SignedDuration::MAX);
    let ready_at = entry.status.ready_at.as_ref();
    ready_at.is_some_and(|at| now.duration_since(at.0) < window)
}
