//! What gateways tell the controller of the traffic to a sandbox: open requests and streams count as
//! activity, and so do requests to ports behind which nobody tells how long it has been idle.

pub mod desk;
mod remote;

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::index::Key;

pub use desk::Desk;
pub use remote::HttpGateways;

/// Traffic of one sandbox through all gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Since the last request ended; zero while one is open. If none has been seen, since a gateway
    /// began to watch.
    pub idle: Duration,
    /// Whether there has been a request.
    pub seen: bool,
}

/// Not every gateway could be asked.
#[derive(Debug, thiserror::Error)]
#[error("a gateway does not answer: {0}")]
pub struct GatewaysError(pub String);

/// All gateways of an installation.
pub trait Gateways: Debug + Send + Sync {
    /// What they know of a sandbox; `None` if there are none.
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>>;
}

/// An installation without gateways.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGateways;

impl Gateways for NoGateways {
    fn traffic<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        Box::pin(async { Ok(None) })
    }
}

impl Traffic {
    /// Of several gateways: the latest request of any.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.seen, other.seen) {
            (true, false) => self,
            (false, true) => other,
            _ => Self {
                idle: self.idle.min(other.idle),
                seen: self.seen,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_request_counts_and_no_start_of_a_gateway() {
        let seen = |seconds| Traffic {
            idle: Duration::from_secs(seconds),
            seen: true,
        };
        let fresh = Traffic {
            idle: Duration::from_secs(1),
            seen: false,
        };
        assert_eq!(seen(9).and(seen(5)), seen(5));
        assert_eq!(seen(9).and(fresh), seen(9));
        assert_eq!(fresh.and(seen(9)), seen(9));
    }
}
