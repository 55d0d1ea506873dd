//! Token bucket of rate limits, on tokio's clock, so that limits run in virtual time in tests. Reasons
//! against a library: `docs/decisions/094-own-token-bucket.md`.

use std::time::Duration;

use tokio::time::Instant;

/// A burst after a quiet time, then one token per interval.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    burst: u32,
    interval: Duration,
    /// Time at which the bucket is full again.
    full_at: Option<Instant>,
}

impl TokenBucket {
    pub const fn new(burst: u32, interval: Duration) -> Self {
        Self {
            burst,
            interval,
            full_at: None,
        }
    }

    pub fn take(&mut self) -> bool {
        self.reserve(Duration::ZERO).is_some()
    }

    /// Takes a token, possibly a future one, and returns the time until it may be used. `None`,
    /// and no token, if that is longer than `max_wait`.
    pub fn reserve(&mut self, max_wait: Duration) -> Option<Duration> {
        let now = Instant::now();
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        let wait = (full_at - now).saturating_sub(self.interval * self.burst);
        (wait <= max_wait).then(|| {
            self.full_at = Some(full_at);
            wait
        })
    }

    /// Tokens of a full bucket.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Tokens that can be taken now.
    pub fn remaining(&self) -> u32 {
        let interval = self.interval.as_nanos().max(1);
        let missing = self.full_after().as_nanos().div_ceil(interval);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        self.burst.saturating_sub(missing)
    }

    /// Time until the bucket is full.
    pub fn full_after(&self) -> Duration {
        let now = Instant::now();
        self.full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Returns whether the bucket is as good as a new one.
    pub fn is_full(&self) -> bool {
        self.full_after().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bucket_allows_burst_then_rate_and_refills() {
        let tenth = Duration::from_millis(100);
        let mut bucket = TokenBucket::new(2, tenth);
        assert!(bucket.is_full());
        assert_eq!(
            (bucket.remaining(), bucket.full_after()),
            (2, Duration::ZERO)
        );
        let waits: Vec<_> = (0..4).map_while(|_| bucket.reserve(tenth)).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, tenth]);
        assert_eq!((bucket.remaining(), bucket.full_after()), (0, tenth * 3));
        tokio::time::advance(tenth).await;
        assert!(!bucket.take());
        tokio::time::advance(tenth).await;
        assert!(bucket.take() && !bucket.take() && !bucket.is_full());
        tokio::time::advance(tenth * 2).await;
        assert!(bucket.is_full());
    }
}
