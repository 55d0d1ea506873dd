//! Detects clock jumps. Timers use a monotonic clock that stops while the machine sleeps, but
//! deadlines are wall-clock times. After a jump, everything in the work queue is due earlier by the
//! difference.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use shared::kubernetes::work_queue::WorkQueue;

/// Interval of the comparison, and the longest delay of a deadline after a suspend.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Normal difference between the clocks: the wall clock is adjusted all the time.
const JUMP_TOLERANCE: Duration = Duration::from_secs(1);

/// Advances the deadlines of the queue after each clock jump. A clock that was set by hand looks
/// the same; a reconcile that comes too early changes nothing.
pub(super) async fn watch_clock_jumps<K>(now: impl Fn() -> Timestamp, queue: &WorkQueue<K>)
where
    K: Clone + Debug + Eq + Hash + Ord,
{
    let (mut wall, mut monotonic) = (now(), Instant::now());
    loop {
        sleep(CHECK_INTERVAL).await;
        let passed = Duration::try_from(now().duration_since(wall)).unwrap_or_default();
        let suspended = passed.saturating_sub(monotonic.elapsed());
        if suspended > JUMP_TOLERANCE {
            tracing::info!(
                seconds = suspended.as_secs(),
                "clock jump detected; deadlines advanced"
            );
            queue.advance_deadlines(suspended);
        }
        if suspended > JUMP_TOLERANCE || monotonic.elapsed() > passed + JUMP_TOLERANCE {
            (wall, monotonic) = (now(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use shared::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn deadlines_fire_on_time_after_suspend() {
        let (clock, suspended) = (
            Clock::starting_at(Timestamp::UNIX_EPOCH),
            Arc::new(AtomicU64::new(0)),
        );
        let queue = Arc::new(WorkQueue::default());
        queue.open();
        let (watched, ahead) = (queue.clone(), suspended.clone());
        let follow = async move {
            let now = || clock.now() + Duration::from_secs(ahead.load(Ordering::Relaxed));
            watch_clock_jumps(now, &watched).await;
        };
        tokio::spawn(follow);
        let start = Instant::now();
        queue.add_at(1, start + Duration::from_hours(1));
        queue.add_at(2, start + Duration::from_hours(3));
        tokio::time::sleep(Duration::from_mins(10)).await;
        suspended.store(45 * 60, Ordering::Relaxed);
        assert_eq!(queue.next().await.0, 1);
        assert_eq!(start.elapsed(), Duration::from_mins(15));
        queue.done(&1);
        // The machine is suspended past a deadline.
        suspended.store(10 * 3600, Ordering::Relaxed);
        assert_eq!(queue.next().await.0, 2);
        assert!(start.elapsed() <= Duration::from_mins(15) + 2 * CHECK_INTERVAL);
        queue.done(&2);
        // A clock that was set back advances nothing, then or later.
        suspended.store(0, Ordering::Relaxed);
        queue.add_at(3, Instant::now() + Duration::from_mins(1));
        let set_back = Instant::now();
        assert_eq!(queue.next().await.0, 3);
        assert_eq!(set_back.elapsed(), Duration::from_mins(1));
    }
}
