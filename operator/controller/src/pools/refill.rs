//! Time at which a pool is refilled: after a burst of claims, whose sandboxes become ready before
//! starts of other Pods take up nodes and API server. A pool that has claims for longer is refilled
//! beside them, the faster the sooner they would empty it, and hardly faster than they come: where
//! starts and claims share a busy API server, more would delay both.

use std::time::Duration;

use tokio::time::Instant;

/// Least time without a claim before a pool is refilled, and as a multiple of the mean time between
/// two claims: an API server that hesitates has not seen the end of a burst.
pub(super) const REFILL_DELAY: Duration = Duration::from_millis(80);
const QUIET_GAPS: u32 = 8;
/// Longest time that claims delay a refill, and that of a pool that still has ready Pods: most bursts
/// are over by then.
const MAX_REFILL_DELAY: Duration = Duration::from_millis(1500);
const MAX_DELAY_WHILE_READY: Duration = Duration::from_secs(3);
/// A pool that lasts so long with the present claims gets one Pod for each of them, with twice as
/// many one for four.
const RUNWAY: Duration = Duration::from_secs(3);
/// Least time between two Pods beside claims, as a part of that between two claims.
const MIN_GAPS: f64 = 0.9;
/// Time between two Pods beside claims.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_secs(1);
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
    /// Moving average of the time between two claims, after the second one.
    mean_gap: Option<Duration>,
    /// Time of the last permission beside them.
    refilled_at: Option<Instant>,
}

impl RecentClaims {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
            mean_gap: None,
            refilled_at: None,
        }
    }

    pub(super) fn add(&mut self, now: Instant) {
        let gap = now.duration_since(self.last);
        self.mean_gap = Some(self.mean_gap.map_or(gap, |mean| (mean * 15 + gap) / 16));
        self.last = now;
    }

    /// Permission for a pool with so many ready Pods, which is then made use of. As long as claimed
    /// sandboxes are being started, the burst has not ended.
    pub(super) fn refill(&mut self, ready: usize, is_claiming: bool, now: Instant) -> Refill {
        let mean_gap = self.mean_gap.unwrap_or_default();
        let quiet = (mean_gap * QUIET_GAPS).clamp(REFILL_DELAY, MAX_REFILL_DELAY);
        let last = if is_claiming { now } else { self.last };
        let quiet_at = last + quiet;
        if quiet_at <= now {
            return Refill::Fully;
        }
        let interval = interval(mean_gap, ready);
        let next = match self.refilled_at {
            Some(at) => at + interval,
            None if ready > 0 => self.first + MAX_DELAY_WHILE_READY,
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

/// Time between two Pods beside claims.
fn interval(mean_gap: Duration, ready: usize) -> Duration {
    let ready = u32::try_from(ready).unwrap_or(u32::MAX);
    let runway = mean_gap.saturating_mul(ready).min(MAX_RUNWAY);
    let ratio = runway.as_secs_f64() / RUNWAY.as_secs_f64();
    let interval = mean_gap.mul_f64((ratio * ratio).max(MIN_GAPS));
    interval.clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Longer ones make no difference.
const MAX_RUNWAY: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 20;

    #[test]
    fn burst_is_refilled_when_it_is_over() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut claims = RecentClaims::new(start);
        let refill = |claims: &mut RecentClaims, ms| claims.refill(5, false, at(ms));
        assert_eq!(refill(&mut claims, 10), Refill::NotBefore(at(80)));
        claims.add(at(GAP));
        // Eight times the gap: an API server that hesitates has not seen the end.
        assert_eq!(refill(&mut claims, 80), Refill::NotBefore(at(180)));
        assert_eq!(claims.refill(5, true, at(180)), Refill::NotBefore(at(340)));
        assert_eq!(refill(&mut claims, 180), Refill::Fully);
    }

    #[test]
    fn pool_is_refilled_beside_claims_the_faster_the_sooner_it_would_be_empty() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (ready, first, interval) in [
            (600, 3000, 320),
            (300, 3000, 80),
            (150, 3000, GAP),
            (75, 3000, 18),
            (0, 1500, 18),
        ] {
            let mut claims = RecentClaims::new(start);
            let mut refill = |ms: u64| {
                claims.add(at(ms));
                claims.refill(ready, false, at(ms))
            };
            for ms in (GAP..first).step_by(20) {
                assert!(matches!(refill(ms), Refill::NotBefore(_)), "{ms}");
            }
            assert_eq!(refill(first), Refill::AtMost(1), "{ready}");
            let next = first + interval;
            for ms in (first + GAP..next).step_by(20) {
                assert!(matches!(refill(ms), Refill::NotBefore(_)), "{ms}");
            }
            let next = refill(next.max(first + GAP));
            assert_eq!(next, Refill::AtMost(1), "{ready}");
        }
    }
}
