//! Idle time of the sandbox. A background command counts as activity until it ends, so that the
//! controller does not pause the sandbox under it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Activity {
    started: Instant,
    state: Mutex<ActivityState>,
}

#[derive(Debug)]
struct ActivityState {
    running: usize,
    last: Instant,
}

/// Keeps the sandbox active during one action or command.
pub(super) struct ActivityGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let started = Instant::now();
        let state = Mutex::new(ActivityState {
            running: 0,
            last: started,
        });
        Arc::new(Self { started, state })
    }

    pub(super) fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.state.lock().running += 1;
        ActivityGuard(self.clone())
    }

    /// Counts something that has no duration.
    pub(super) fn touch(&self) {
        self.state.lock().last = Instant::now();
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn idle(&self) -> Duration {
        let state = self.state.lock();
        if state.running > 0 {
            Duration::ZERO
        } else {
            state.last.elapsed()
        }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_zero_while_an_action_runs() {
        let activity = Activity::new();
        let second = Duration::from_secs(1);
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), second);
        let running = activity.begin();
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Duration::ZERO);
        drop(running);
        tokio::time::advance(second).await;
        assert_eq!((activity.idle(), activity.uptime()), (second, 3 * second));
        activity.touch();
        assert_eq!(activity.idle(), Duration::ZERO);
    }
}
