//! Backoff between replacements of lost Pods, so that a sandbox whose Pods are lost at once does
//! not overload the cluster. The first replacement is immediate.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::per_sandbox::PerSandbox;
use shared::index::Key;

/// Backoff before the second replacement.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// Time without a loss after which the backoff is reset.
const RESET_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Maximum of doublings of the backoff.
const MAX_DOUBLINGS: u32 = 9;

/// Recent losses by sandbox.
#[derive(Debug, Default)]
pub(crate) struct ReplacementBackoff(Mutex<HashMap<Key, LossRecord>>);

#[derive(Debug, Clone, Copy)]
struct LossRecord {
    count: u32,
    last: Timestamp,
}

impl ReplacementBackoff {
    /// Records that a lost Pod was replaced.
    pub(crate) fn record_replacement(&self, key: &Key, now: Timestamp) {
        let mut all = self.0.lock();
        all.retain(|_, losses| !losses.is_reset(now));
        let losses = all.entry(key.clone()).or_insert(LossRecord {
            count: 0,
            last: now,
        });
        losses.count = losses.count.saturating_add(1);
        losses.last = now;
    }

    /// Earliest time of the next replacement.
    pub(crate) fn earliest_replacement(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let losses = *self.0.lock().get(key).filter(|l| !l.is_reset(now))?;
        let doublings = losses.count.saturating_sub(1).min(MAX_DOUBLINGS);
        let delay = INITIAL_BACKOFF * (1 << doublings);
        losses.last.checked_add(delay.min(MAX_BACKOFF)).ok()
    }
}

impl PerSandbox for ReplacementBackoff {
    fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl LossRecord {
    fn is_reset(self, now: Timestamp) -> bool {
        now.duration_since(self.last) > RESET_AFTER
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration as Std;

    use super::*;

    #[test]
    fn backoff_doubles_to_maximum_and_resets() {
        let (backoff, now) = (ReplacementBackoff::default(), Timestamp::UNIX_EPOCH);
        let key = Key {
            namespace: "ns".into(),
            name: "a".into(),
        };
        assert_eq!(backoff.earliest_replacement(&key, now), None);
        let mut delays = Vec::new();
        for _ in 0..10 {
            backoff.record_replacement(&key, now);
            let next = backoff.earliest_replacement(&key, now).unwrap();
            delays.push(Std::try_from(next.duration_since(now)).unwrap().as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        let later = now + RESET_AFTER + SignedDuration::from_secs(1);
        assert_eq!(backoff.earliest_replacement(&key, later), None);
    }
}
