//! Rate limit of one tenant: calls beyond it are delayed, and rejected only if the delay is too
//! long. Clients cannot handle 429 (`docs/specs/runtime-api.md`, section 0.4, rule 7).

use std::time::Duration;

use tokio::time::Instant;

/// Burst without delay after a quiet time, in seconds of the rate.
const BURST_SECONDS: u32 = 2;
/// Maximum delay. Together with the rate, it bounds the number of delayed calls.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Rate limiter of one tenant.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    /// Time of the next call if there were no burst.
    next: Option<Instant>,
}

impl RateLimiter {
    /// Reserves a call at `rate` calls per second. Returns its delay; `None` if it would be too
    /// long, without a reservation.
    pub(super) fn reserve(&mut self, rate: u32) -> Option<Duration> {
        let now = Instant::now();
        let next = self.next.map_or(now, |next| next.max(now));
        let ahead = next.duration_since(now);
        let wait = ahead.saturating_sub(Duration::from_secs(BURST_SECONDS.into()));
        if wait > MAX_WAIT {
            return None;
        }
        self.next = Some(next + Duration::from_secs(1) / rate.max(1));
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_burst_are_delayed_then_rejected() {
        let mut limiter = RateLimiter::default();
        let waits: Vec<_> = (0..100).map_while(|_| limiter.reserve(10)).collect();
        let free = waits.iter().filter(|wait| wait.is_zero()).count();
        assert_eq!(free, 21);
        // Two seconds are free, five can be waited for.
        assert_eq!(waits.len(), 71);
        assert_eq!(waits.last(), Some(&MAX_WAIT));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limiter.reserve(10), Some(Duration::from_millis(4100)));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(limiter.reserve(10), Some(Duration::ZERO));
    }
}
