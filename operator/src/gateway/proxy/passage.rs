//! Requests under way to a Pod, and when the last one ended: what keeps a sandbox from being paused
//! as idle.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Requests to one Pod.
#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Without those that only look after the server.
    working: usize,
    /// When the last one of these ended.
    last: Option<Instant>,
}

/// A request under way; what it opened, a stream or a tunnel, holds it until its end.
#[derive(Debug)]
pub(super) struct Passage {
    activity: Arc<Activity>,
    is_probe: bool,
}

impl Activity {
    /// Counts a request in.
    pub(super) fn begin(self: Arc<Self>, is_probe: bool) -> Passage {
        self.0.lock().working += usize::from(!is_probe);
        Passage {
            activity: self,
            is_probe,
        }
    }

    /// Since the last request; zero while one is under way, `None` if there was none.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.0.lock();
        match state.working {
            0 => state.last.map(|last| last.elapsed()),
            _ => Some(Duration::ZERO),
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.is_probe {
            let mut state = self.activity.0.lock();
            state.working -= 1;
            state.last = Some(Instant::now());
        }
    }
}

/// Whether a request only looks after the server: such requests never stop, and say nothing about
/// anybody working.
pub(super) fn is_probe(parts: &Parts) -> bool {
    const PROBES: [&str; 4] = ["/alive", "/health", "/ready", "/server_info"];
    parts.method == Method::GET && PROBES.contains(&parts.uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_open_request_is_activity_until_its_end() {
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
