//! How long the sandbox has been idle. A command under way is activity for as long as it runs, also
//! after its action has been answered: whoever pauses idle sandboxes must not pause this one.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Activity {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: usize,
    last: Instant,
}

/// One action or command under way.
pub(super) struct Running(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let started = Instant::now();
        let state = Mutex::new(State {
            running: 0,
            last: started,
        });
        Arc::new(Self { started, state })
    }

    pub(super) fn begin(self: &Arc<Self>) -> Running {
        self.state.lock().running += 1;
        Running(self.clone())
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

impl Drop for Running {
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
    async fn a_running_action_is_not_idle() {
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
    }
}
