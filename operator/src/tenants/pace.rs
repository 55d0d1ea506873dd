//! How fast one tenant may call: a client that is too fast waits for its turn, and is refused only
//! when the turn is far away. Clients have no use for 429 (runtime API spec 0.4 rule 7).

use std::time::Duration;

use tokio::time::Instant;

/// Calls that need no turn after a quiet time, in seconds of the rate.
const BURST: u32 = 2;
/// Longest wait for a turn. Together with the rate it bounds how many calls wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The pace of one tenant.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next call would have its turn if there were no burst.
    next: Option<Instant>,
}

impl Pace {
    /// Takes a turn at `rate` calls per second. Returns the wait for it; `None` if it is too long,
    /// and then none is taken.
    pub(super) fn take(&mut self, rate: u32) -> Option<Duration> {
        let now = Instant::now();
        let next = self.next.map_or(now, |next| next.max(now));
        let ahead = next.duration_since(now);
        let wait = ahead.saturating_sub(Duration::from_secs(BURST.into()));
        if wait > LONGEST_WAIT {
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
    async fn a_burst_is_free_then_calls_wait_then_they_are_refused() {
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..100).map_while(|_| pace.take(10)).collect();
        let free = waits.iter().filter(|wait| wait.is_zero()).count();
        assert_eq!(free, 21);
        // Two seconds are free, five can be waited for.
        assert_eq!(waits.len(), 71);
        assert_eq!(waits.last(), Some(&LONGEST_WAIT));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pace.take(10), Some(Duration::from_millis(4100)));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(pace.take(10), Some(Duration::ZERO));
    }
}
