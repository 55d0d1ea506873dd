//! Restart backoff of containers: at once, then 10 s, doubling to 5 minutes, as in the kubelet.

use std::time::Duration;

const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Run time after which the backoff is reset.
const RESET_AFTER: Duration = Duration::from_mins(10);

/// Backoff of one container.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Delay before the next start after a run of length `ran`.
    pub(crate) fn after_run(&mut self, ran: Duration) -> Duration {
        if ran >= RESET_AFTER {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.advance();
        delay
    }

    /// Delay after a failed start, such as a missing image.
    pub(crate) fn after_failure(&mut self) -> Duration {
        if self.next.is_zero() {
            self.advance();
        }
        let delay = self.next;
        self.advance();
        delay
    }

    fn advance(&mut self) {
        self.next = (self.next * 2).clamp(INITIAL_BACKOFF, MAX_BACKOFF);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        let delays: Vec<u64> = (0..8)
            .map(|_| backoff.after_run(Duration::from_secs(1)).as_secs())
            .collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn backoff_resets_after_long_run() {
        let mut backoff = Backoff::default();
        for _ in 0..4 {
            backoff.after_run(Duration::ZERO);
        }
        assert_eq!(backoff.after_run(RESET_AFTER), Duration::ZERO);
        assert_eq!(backoff.after_run(Duration::ZERO), INITIAL_BACKOFF);
    }

    #[test]
    fn failed_start_always_waits() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_failure(), INITIAL_BACKOFF);
        assert_eq!(backoff.after_failure(), INITIAL_BACKOFF * 2);
    }
}
