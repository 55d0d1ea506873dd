//! Exponential backoff with jitter for watches and reconciles.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use kube::runtime::utils::{Backoff, ResetTimerBackoff};

/// Delays that double from `first` to `last`.
#[derive(Debug, Clone)]
pub struct ExponentialBackoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl ExponentialBackoff {
    pub fn new(first: Duration, last: Duration) -> Self {
        Self {
            first,
            last,
            next: first,
        }
    }
}

impl Iterator for ExponentialBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.next;
        self.next = (delay * 2).min(self.last);
        Some(jittered(delay))
    }
}

impl Backoff for ExponentialBackoff {
    fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Backoff of a watch: at most 5 s, so that a restored API server is noticed soon. It is reset only
/// after 30 s without an error, because a watcher reports success before it has connected.
pub fn watch_backoff() -> ResetTimerBackoff<ExponentialBackoff> {
    let delays = ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(5));
    ResetTimerBackoff::new(delays, Duration::from_secs(30))
}

/// Returns 50 to 100 % of a delay, so that clients that failed together do not retry together.
pub fn jittered(delay: Duration) -> Duration {
    // A new RandomState is randomly keyed, which is random enough to spread load.
    let random = RandomState::new().build_hasher().finish() % 1000;
    delay.mul_f64(0.5 + f64::from(u32::try_from(random).unwrap_or(0)) / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_maximum_and_resets() {
        let mut delays =
            ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let taken: Vec<_> = delays.by_ref().take(10).collect();
        assert!(taken[0] <= Duration::from_millis(200));
        assert!(taken[9] >= Duration::from_millis(2500) && taken[9] <= Duration::from_secs(5));
        delays.reset();
        assert!(delays.next().unwrap() <= Duration::from_millis(200));
    }
}
