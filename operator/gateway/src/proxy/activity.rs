//! In-flight requests to a Pod and the end of the last one. They keep a sandbox from being paused
//! as idle.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<ActivityState>);

#[derive(Debug, Default)]
struct ActivityState {
    /// In-flight requests without probes.
    active_requests: usize,
    /// End of the last of these.
    last_ended_at: Option<Instant>,
}

/// One in-flight request; held until its stream or tunnel has closed.
#[derive(Debug)]
pub(super) struct ActivityGuard {
    activity: Arc<Activity>,
    is_probe: bool,
}

impl Activity {
    pub(super) fn begin(self: Arc<Self>, is_probe: bool) -> ActivityGuard {
        self.0.lock().active_requests += usize::from(!is_probe);
        ActivityGuard {
            activity: self,
            is_probe,
        }
    }

    /// Time since the last request: zero while one is in flight, `None` if there was none.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.0.lock();
        match state.active_requests {
            0 => state.last_ended_at.map(|last| last.elapsed()),
            _ => Some(Duration::ZERO),
        }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        if !self.is_probe {
            let mut state = self.activity.0.lock();
            state.active_requests -= 1;
            state.last_ended_at = Some(Instant::now());
        }
    }
}

/// True if a request is a health probe. Probes never stop and are no sign of work.
pub(super) fn is_probe(parts: &Parts) -> bool {
    const PROBES: [&str; 4] = ["/alive", "/health", "/ready", "/server_info"];
    parts.method == Method::GET && PROBES.contains(&parts.uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_is_activity_until_it_ends() {
        let activity = Arc::new(Activity::default());
        let second = Duration::from_secs(1);
        assert_eq!(activity.idle(), None);
        let begin = |is_probe| activity.clone().begin(is_probe);
        drop(begin(true));
        assert_eq!(activity.idle(), None);
        let (one, two) = (begin(false), begin(false));
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(Duration::ZERO));
        drop(one);
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(Duration::ZERO));
        drop(two);
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(second));
    }
}
