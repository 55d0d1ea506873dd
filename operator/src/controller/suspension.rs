//! A machine that is suspended stops the clock on which deadlines wait, and not the time of day that
//! they mean. So both are compared now and then, and what waited meanwhile is due that much earlier.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::kubernetes::queue::Queue;

/// Pause between two looks, and so the longest that a deadline comes late after a suspension.
const LOOK: Duration = Duration::from_secs(5);
/// What clocks differ by without having stood still: they are adjusted all the time.
const NOISE: Duration = Duration::from_secs(1);

/// Hurries the queue for ever, whenever the time of day has gone ahead. That a clock was set looks
/// the same and has the same effect; a pass that comes too early changes nothing.
pub(super) async fn follow<K>(now: impl Fn() -> Timestamp, queue: &Queue<K>)
where
    K: Clone + Debug + Eq + Hash + Ord,
{
    let (mut wall, mut awake) = (now(), Instant::now());
    loop {
        sleep(LOOK).await;
        let passed = Duration::try_from(now().duration_since(wall)).unwrap_or_default();
        let slept = passed.saturating_sub(awake.elapsed());
        if slept > NOISE {
            tracing::info!(seconds = slept.as_secs(), "time has passed unnoticed");
            queue.hurry(slept);
        }
        if slept > NOISE || awake.elapsed() > passed + NOISE {
            (wall, awake) = (now(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn deadlines_come_when_they_mean_though_the_machine_slept() {
        let (clock, slept) = (
            Clock::starting_at(Timestamp::UNIX_EPOCH),
            Arc::new(AtomicU64::new(0)),
        );
        let queue = Arc::new(Queue::default());
        queue.open();
        let (of, ahead) = (queue.clone(), slept.clone());
        let follow = async move {
            let now = || clock.now() + Duration::from_secs(ahead.load(Ordering::Relaxed));
            follow(now, &of).await;
        };
        tokio::spawn(follow);
        let start = Instant::now();
        queue.add_at(1, start + Duration::from_hours(1));
        queue.add_at(2, start + Duration::from_hours(3));
        tokio::time::sleep(Duration::from_mins(10)).await;
        slept.store(45 * 60, Ordering::Relaxed);
        assert_eq!(queue.next().await.0, 1);
        assert_eq!(start.elapsed(), Duration::from_mins(15));
        queue.done(&1);
        // It falls asleep over a deadline.
        slept.store(10 * 3600, Ordering::Relaxed);
        assert_eq!(queue.next().await.0, 2);
        assert!(start.elapsed() <= Duration::from_mins(15) + 2 * LOOK);
        queue.done(&2);
        // A clock that was set back makes nobody hurry, then or later.
        slept.store(0, Ordering::Relaxed);
        queue.add_at(3, Instant::now() + Duration::from_mins(1));
        let set_back = Instant::now();
        assert_eq!(queue.next().await.0, 3);
        assert_eq!(set_back.elapsed(), Duration::from_mins(1));
    }
}
