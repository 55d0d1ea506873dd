//! Time at which a pool is refilled: after a burst of claims, whose sandboxes become ready before
//! starts of other Pods take up nodes and API server. A pool that has claims for longer is refilled
//! beside them, the faster the emptier it is.

use std::time::Duration;

use tokio::time::Instant;

/// Time without a claim before a pool is refilled, and the longest time that claims delay it.
pub(super) const REFILL_DELAY: Duration = Duration::from_millis(80);
const MAX_REFILL_DELAY: Duration = Duration::from_millis(800);
/// Time between two Pods beside claims, up to a percentage of the wanted ones. It grows with the
/// square of the percentage: 80 ms at a half, 320 ms if the pool is full.
const INTERVAL: Duration = Duration::from_millis(20);
const SHORT_INTERVAL_PERCENT: u32 = 25;
/// Most Pods that one reconcile creates beside claims, if it is late.
const MAX_AT_ONCE: u128 = 8;

/// Permission to refill a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refill {
    Fully,
    /// So many Pods, beside claims, which come first.
    AtMost(usize),
    NotBefore(Instant),
}

/// Claims from a pool since it was last refilled fully.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentClaims {
    first: Instant,
    last: Instant,
    /// Time of the last permission beside them.
    refilled_at: Option<Instant>,
}

impl RecentClaims {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
            refilled_at: None,
        }
    }

    pub(super) fn add(&mut self, now: Instant) {
        self.last = now;
    }

    /// Permission for a pool that has this percentage of its Pods, which is then made use of.
    pub(super) fn refill(&mut self, percent: u32, now: Instant) -> Refill {
        let quiet_at = self.last + REFILL_DELAY;
        if quiet_at <= now {
            return Refill::Fully;
        }
        let interval = interval(percent);
        let next = match self.refilled_at {
            Some(at) => at + interval,
            None => self.first + MAX_REFILL_DELAY,
        };
        if next > now {
            return Refill::NotBefore(quiet_at.min(next));
        }
        self.refilled_at = Some(now);
        let missed = now.duration_since(next).as_millis() / interval.as_millis();
        let count = usize::try_from((missed + 1).min(MAX_AT_ONCE));
        Refill::AtMost(count.unwrap_or(1))
    }
}

fn interval(percent: u32) -> Duration {
    let percent = percent.clamp(SHORT_INTERVAL_PERCENT, 100);
    INTERVAL * (percent * percent) / (SHORT_INTERVAL_PERCENT * SHORT_INTERVAL_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_refilled_when_it_is_over() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut claims = RecentClaims::new(start);
        claims.add(at(60));
        assert_eq!(claims.refill(50, at(70)), Refill::NotBefore(at(140)));
        claims.add(at(130));
        assert_eq!(claims.refill(50, at(140)), Refill::NotBefore(at(210)));
        assert_eq!(claims.refill(50, at(210)), Refill::Fully);
    }

    #[test]
    fn pool_is_refilled_beside_claims_the_faster_the_emptier_it_is() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (percent, interval) in [(100, 320), (50, 80), (25, 20), (0, 20)] {
            let mut claims = RecentClaims::new(start);
            let mut refill = |ms| {
                claims.add(at(ms));
                claims.refill(percent, at(ms))
            };
            assert_eq!(refill(790), Refill::NotBefore(at(800)));
            assert_eq!(refill(800), Refill::AtMost(1), "{percent}");
            let next = 800 + interval;
            let waits = Refill::NotBefore(at(next.min(801 + 80)));
            assert_eq!(refill(801), waits, "{percent}");
            assert_eq!(refill(next), Refill::AtMost(1), "{percent}");
            // After a delay, what it missed, within bounds.
            assert_eq!(refill(next + 3 * interval), Refill::AtMost(3), "{percent}");
            assert_eq!(refill(next + 99 * interval), Refill::AtMost(8), "{percent}");
        }
    }
}
