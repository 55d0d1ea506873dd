//! A `ResourceQuota` as it is met by who makes Pods: refusals whose numbers are other ones each time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

/// A quota that is used up until there is [`Quota::make_room`].
#[derive(Debug, Default)]
pub struct Quota {
    has_room: AtomicBool,
    refused: AtomicUsize,
    /// It is a policy, which says something else each time.
    varies_messages: bool,
}

impl Quota {
    pub fn make_room(&self) {
        self.has_room.store(true, Ordering::Relaxed);
    }

    pub(super) fn new(varies_messages: bool) -> Self {
        Self {
            varies_messages,
            ..Self::default()
        }
    }

    /// Returns the number of rejected Pods.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// The answer to the next Pod, unless there is room for it.
    pub(super) fn refuse(&self) -> Option<Response> {
        if self.has_room.load(Ordering::Relaxed) {
            return None;
        }
        let used = 100 + self.refused.fetch_add(1, Ordering::Relaxed);
        let quota = format!(
            "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2, \
             used: limits.cpu={used}, limited: limits.cpu=100"
        );
        let policy = format!("admission webhook \"policy\" denied the request: audit id {used}");
        let message = if self.varies_messages { policy } else { quota };
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": message, "reason": "Forbidden", "code": 403});
        let mut answer = Response::new(Body::from(status.to_string()));
        *answer.status_mut() = StatusCode::FORBIDDEN;
        Some(answer)
    }
}
