//! Pods of pools that ended before a sandbox claimed them. Replacements of the first ones follow at
//! once, those of further ones after a growing delay. Other creations go on.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shared::index::Key;
use tokio::time::Instant;

const INITIAL_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(5);
/// Maximum of doublings of the delay.
const MAX_DOUBLINGS: u32 = 9;
/// Time without an end after which the delay is reset.
const RESET_AFTER: Duration = Duration::from_mins(10);
/// Pods of one node end one by one. They count as one loss.
const LOSS_WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Replacements(Mutex<HashMap<Key, Losses>>);

#[derive(Debug, Clone, Copy)]
struct Losses {
    /// Losses, each of one or more Pods, with less than [`RESET_AFTER`] between them.
    count: u32,
    began_at: Instant,
    /// Pods of the last loss, which are not replaced before `replace_at`.
    pods: usize,
    replace_at: Instant,
}

impl Replacements {
    pub(super) fn forget(&self, pool: &Key) {
        self.0.lock().remove(pool);
    }

    /// Records Pods that have ended.
    pub(super) fn record(&self, pool: &Key, pods: usize) {
        let (mut all, now) = (self.0.lock(), Instant::now());
        let known = all.get(pool).copied();
        let recent =
            known.filter(|losses| now < losses.replace_at.max(losses.began_at) + RESET_AFTER);
        let losses = match recent {
            Some(same) if now < same.began_at + LOSS_WINDOW => Losses {
                pods: same.pods + pods,
                ..same
            },
            earlier => {
                let held = earlier.filter(|earlier| earlier.replace_at > now);
                let count = earlier.map_or(0, |earlier| earlier.count);
                Losses {
                    count: count + 1,
                    began_at: now,
                    pods: pods + held.map_or(0, |held| held.pods),
                    replace_at: now + delay(count),
                }
            }
        };
        all.insert(pool.clone(), losses);
    }

    /// Number of Pods that are not replaced yet, and until when.
    pub(super) fn held_back(&self, pool: &Key) -> Option<(usize, Instant)> {
        let losses = *self.0.lock().get(pool)?;
        (losses.replace_at > Instant::now()).then_some((losses.pods, losses.replace_at))
    }
}

/// Delay of a replacement after so many earlier losses.
fn delay(earlier: u32) -> Duration {
    match earlier.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => (INITIAL_DELAY * (1 << doublings.min(MAX_DOUBLINGS))).min(MAX_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::tests::key;

    #[tokio::test(start_paused = true)]
    async fn further_losses_are_replaced_after_a_growing_delay() {
        let (replacements, pool) = (Replacements::default(), key("p"));
        let held = || {
            let held = replacements.held_back(&pool);
            held.map(|(pods, until)| (pods, until.duration_since(Instant::now()).as_secs()))
        };
        // A node with three Pods.
        for _ in 0..3 {
            replacements.record(&pool, 1);
            advance(Duration::from_millis(20)).await;
        }
        assert_eq!(held(), None);
        let mut delays = Vec::new();
        for _ in 0..10 {
            advance(LOSS_WINDOW).await;
            replacements.record(&pool, 2);
            let (pods, seconds) = held().unwrap();
            assert!(pods >= 2);
            delays.push(seconds);
            advance(Duration::from_secs(seconds)).await;
            assert_eq!(held(), None);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        replacements.record(&pool, 1);
        replacements.record(&pool, 1);
        assert_eq!(held().map(|(pods, _)| pods), Some(2), "one loss");
        advance(MAX_DELAY + RESET_AFTER).await;
        replacements.record(&pool, 1);
        assert_eq!(held(), None);
    }
}
