//! When a container that ended may start again: at once, then after 10 s, doubling to 5 minutes.
//!
//! The figures are the kubelet's, so that whoever watches restarts sees what a cluster would show.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(5);
/// A container that ran this long starts with a clean record.
const FORGIVEN: Duration = Duration::from_mins(10);

/// The record of one container.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The pause before the next start after a run of length `ran`.
    pub(crate) fn after_run(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.advance();
        pause
    }

    /// The pause after an attempt that did not even start, such as a missing image.
    pub(crate) fn after_failure(&mut self) -> Duration {
        if self.next.is_zero() {
            self.advance();
        }
        let pause = self.next;
        self.advance();
        pause
    }

    fn advance(&mut self) {
        self.next = (self.next * 2).clamp(FIRST, LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8)
            .map(|_| backoff.after_run(Duration::from_secs(1)).as_secs())
            .collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_long_run_is_forgiven() {
        let mut backoff = Backoff::default();
        for _ in 0..4 {
            backoff.after_run(Duration::ZERO);
        }
        assert_eq!(backoff.after_run(FORGIVEN), Duration::ZERO);
        assert_eq!(backoff.after_run(Duration::ZERO), FIRST);
    }

    #[test]
    fn a_failure_to_start_always_waits() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_failure(), FIRST);
        assert_eq!(backoff.after_failure(), FIRST * 2);
    }
}
