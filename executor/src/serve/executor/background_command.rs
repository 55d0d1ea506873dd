//! Counts a command as activity after its action was answered, as long as it writes output or uses
//! CPU. A server in the foreground has no end; it must not keep the sandbox from ever being idle.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::serve::activity::Activity;
use crate::serve::shell::CommandUsage;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(15);
/// Time without output and CPU usage after which a command no longer counts as activity.
const QUIET_WINDOW: Duration = Duration::from_mins(5);
/// Share of one CPU, in percent, that counts as activity.
const BUSY_PERCENT: u64 = 5;

/// Runs until the command ends.
pub(super) async fn track(
    activity: Arc<Activity>,
    ended: impl Future<Output = ()>,
    mut usage: impl FnMut() -> CommandUsage,
) {
    let mut ended = pin!(ended);
    let mut guard = Some(activity.begin());
    let (mut last, mut last_busy) = (usage(), Instant::now());
    loop {
        tokio::select! {
            () = &mut ended => return,
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
        }
        let current = usage();
        if is_busy(&last, &current) {
            last_busy = Instant::now();
            guard.get_or_insert_with(|| activity.begin());
        } else if last_busy.elapsed() >= QUIET_WINDOW {
            guard = None;
        }
        last = current;
    }
}

fn is_busy(last: &CommandUsage, current: &CommandUsage) -> bool {
    let ticks = current.cpu_ticks.saturating_sub(last.cpu_ticks);
    let interval = rustix::param::clock_ticks_per_second() * SAMPLE_INTERVAL.as_secs();
    current.last_output != last.last_output || 100 * ticks >= BUSY_PERCENT * interval
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::oneshot;

    #[tokio::test(start_paused = true)]
    async fn quiet_command_is_idle_until_it_uses_cpu() {
        let activity = Activity::new();
        let (end, ended) = oneshot::channel::<()>();
        let ticks = Arc::new(AtomicU64::new(0));
        let (sampled, last_output) = (Arc::clone(&ticks), Instant::now());
        let usage = move || CommandUsage {
            last_output,
            cpu_ticks: sampled.load(Ordering::Relaxed),
        };
        let ended = async { drop(ended.await) };
        let tracking = tokio::spawn(track(Arc::clone(&activity), ended, usage));
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        assert_eq!(activity.idle(), Duration::ZERO);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(activity.idle() > Duration::from_mins(50));
        let second = rustix::param::clock_ticks_per_second();
        ticks.fetch_add(second, Ordering::Relaxed);
        tokio::time::sleep(2 * SAMPLE_INTERVAL).await;
        assert_eq!(activity.idle(), Duration::ZERO);
        end.send(()).unwrap();
        tracking.await.unwrap();
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        assert_eq!(activity.idle(), SAMPLE_INTERVAL);
    }
}
