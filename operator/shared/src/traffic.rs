//! Traffic of a sandbox, as gateways report it to the controller. Open requests and streams count
//! as activity, and so do requests to ports whose server does not report idle time.

mod client;
pub mod endpoint;

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::index::Key;

pub use client::HttpGateways;
pub use endpoint::TrafficEndpoint;

/// Traffic of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Time since the last request ended (zero while one is open), or since the gateway started.
    pub idle: Duration,
    pub has_seen_request: bool,
}

/// A gateway did not respond.
#[derive(Debug, thiserror::Error)]
#[error("a gateway does not respond: {0}")]
pub struct GatewaysError(pub String);

pub trait Gateways: Debug + Send + Sync {
    /// Traffic of a sandbox; `None` if there are no gateways.
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>>;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct NoGateways;

impl Gateways for NoGateways {
    fn traffic<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        Box::pin(async { Ok(None) })
    }
}

impl Traffic {
    /// Merges the reports of two gateways: the latest request counts.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self.has_seen_request, other.has_seen_request) {
            (true, false) => self,
            (false, true) => other,
            _ => Self {
                idle: self.idle.min(other.idle),
                has_seen_request: self.has_seen_request,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keeps_latest_request_over_start_of_a_gateway() {
        let seen = |seconds| Traffic {
            idle: Duration::from_secs(seconds),
            has_seen_request: true,
        };
        let fresh = Traffic {
            idle: Duration::from_secs(1),
            has_seen_request: false,
        };
        assert_eq!(seen(9).merge(seen(5)), seen(5));
        assert_eq!(seen(9).merge(fresh), seen(9));
        assert_eq!(fresh.merge(seen(9)), seen(9));
    }
}
