//! In-flight requests to a Pod and the end of the last one. They keep a sandbox from being paused
//! as idle.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<ActivityState>);

#[derive(Debug, Default)]
struct ActivityState {
    /// In-flight requests that count as long as they last.
    active_requests: usize,
    /// End of the last of these, or begin of a terminal.
    last_active_at: Option<Moment>,
}

/// Time by two clocks: a suspended machine stops the first one, and the second one may be set.
#[derive(Debug, Clone, Copy)]
struct Moment {
    instant: Instant,
    time: Timestamp,
}

/// Meaning of a request for the idle time of its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A health probe: never stops, and is no sign of work.
    Probe,
    /// Connection to a terminal. A forgotten one stays open for days; the executor counts what is
    /// typed and seen (`docs/specs/executor.md`, section 13).
    Terminal,
    Other,
}

/// One in-flight request; held until its stream or tunnel has closed.
#[derive(Debug)]
pub(super) struct ActivityGuard {
    activity: Arc<Activity>,
    kind: RequestKind,
}

impl Activity {
    pub(super) fn begin(self: Arc<Self>, kind: RequestKind) -> ActivityGuard {
        let mut state = self.0.lock();
        match kind {
            RequestKind::Probe => {}
            RequestKind::Terminal => state.last_active_at = Some(Moment::now()),
            RequestKind::Other => state.active_requests += 1,
        }
        drop(state);
        ActivityGuard {
            activity: self,
            kind,
        }
    }

    /// Time since the last request: zero while one is in flight, `None` if there was none.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.0.lock();
        match state.active_requests {
            0 => state.last_active_at.map(|last| last.instant.elapsed()),
            _ => Some(Duration::ZERO),
        }
    }

    /// End of the last request, or `begin` if there was none; `None` while one is in flight.
    pub(super) fn idle_since(&self, begin: Timestamp) -> Option<Timestamp> {
        let state = self.0.lock();
        let last = state.last_active_at.map_or(begin, |last| last.time);
        (state.active_requests == 0).then_some(last)
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        if self.kind == RequestKind::Other {
            let mut state = self.activity.0.lock();
            state.active_requests -= 1;
            state.last_active_at = Some(Moment::now());
        }
    }
}

impl Moment {
    fn now() -> Self {
        Self {
            instant: Instant::now(),
            time: Timestamp::now(),
        }
    }
}

impl RequestKind {
    /// Kind by the request that the sandbox gets.
    pub(super) fn of(parts: &Parts) -> Self {
        const PROBES: [&str; 4] = ["/alive", "/health", "/ready", "/server_info"];
        let path = parts.uri.path();
        let terminal = path.strip_prefix("/terminals/");
        match parts.method {
            Method::GET if PROBES.contains(&path) => Self::Probe,
            Method::GET if terminal.is_some_and(|path| path.ends_with("/connect")) => {
                Self::Terminal
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_is_activity_until_it_ends() {
        let activity = Arc::new(Activity::default());
        let second = Duration::from_secs(1);
        let begin_of_gateway = Timestamp::UNIX_EPOCH;
        assert_eq!(activity.idle(), None);
        let begin = |kind| activity.clone().begin(kind);
        drop(begin(RequestKind::Probe));
        assert_eq!(activity.idle(), None);
        let idle_since = || activity.idle_since(begin_of_gateway);
        assert_eq!(idle_since(), Some(begin_of_gateway));
        let (one, two) = (begin(RequestKind::Other), begin(RequestKind::Other));
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(Duration::ZERO));
        drop(one);
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(Duration::ZERO));
        assert_eq!(idle_since(), None);
        drop(two);
        tokio::time::advance(second).await;
        assert_eq!(activity.idle(), Some(second));
        assert!(idle_since().is_some_and(|since| since > begin_of_gateway));
        let terminal = begin(RequestKind::Terminal);
        assert_eq!(activity.idle(), Some(Duration::ZERO));
        tokio::time::advance(second).await;
        drop(terminal);
        assert_eq!(activity.idle(), Some(second));
    }

    #[test]
    fn probes_and_terminals_are_known_by_their_paths() {
        let kind = |method: Method, path: &str| {
            let request = http::Request::builder().method(method).uri(path);
            RequestKind::of(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(kind(Method::GET, "/alive"), RequestKind::Probe);
        assert_eq!(kind(Method::POST, "/alive"), RequestKind::Other);
        assert_eq!(
            kind(Method::GET, "/terminals/x/connect?after=1"),
            RequestKind::Terminal
        );
        assert_eq!(
            kind(Method::GET, "/terminals/agent/connect"),
            RequestKind::Terminal
        );
        assert_eq!(kind(Method::GET, "/terminals"), RequestKind::Other);
    }
}
