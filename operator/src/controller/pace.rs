//! How fast lost Pods are replaced: the first at once, the next ones after growing pauses, so
//! that a sandbox whose Pods die at birth does not wear out the cluster.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::index::Key;

/// Pause before the second replacement.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// After so long without a loss, the next one is the first.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// How many losses double the pause.
const DOUBLINGS: u32 = 9;

/// Losses of every sandbox that had some lately.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<Key, Losses>>);

#[derive(Debug, Clone, Copy)]
struct Losses {
    count: u32,
    last: Timestamp,
}

impl Pace {
    /// Notes that a Pod has been replaced.
    pub(crate) fn note(&self, key: &Key, now: Timestamp) {
        let mut all = self.0.lock();
        all.retain(|_, losses| !losses.forgiven(now));
        let losses = all.entry(key.clone()).or_insert(Losses {
            count: 0,
            last: now,
        });
        losses.count = losses.count.saturating_add(1);
        losses.last = now;
    }

    /// The earliest moment for the next replacement.
    pub(crate) fn next(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let losses = *self.0.lock().get(key).filter(|l| !l.forgiven(now))?;
        let doublings = losses.count.saturating_sub(1).min(DOUBLINGS);
        let pause = FIRST_PAUSE * (1 << doublings);
        losses.last.checked_add(pause.min(LONGEST_PAUSE)).ok()
    }

    /// Forgets a sandbox.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl Losses {
    fn forgiven(self, now: Timestamp) -> bool {
        now.duration_since(self.last) > FORGIVEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration as Std;

    use super::*;

    #[test]
    fn pauses_double_and_are_forgiven() {
        let (pace, now) = (Pace::default(), Timestamp::UNIX_EPOCH);
        let key = Key {
            namespace: "ns".into(),
            name: "a".into(),
        };
        assert_eq!(pace.next(&key, now), None);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pace.note(&key, now);
            let next = pace.next(&key, now).unwrap();
            pauses.push(Std::try_from(next.duration_since(now)).unwrap().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        let later = now + FORGIVEN_AFTER + SignedDuration::from_secs(1);
        assert_eq!(pace.next(&key, later), None);
    }
}
