//! Health of the process for people and kubelet probes.
//!
//! *Ready* needs the API server, its resources and the permissions. *Alive* needs only this
//! process: its watches run and its queue moves. A restart cannot bring back an API server; it
//! would only drop the indexes.

mod freshness;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use freshness::Freshness;

use crate::kubernetes::error_text::{error_text, status_text, watch_cause, watch_error_text};

/// A watch silent for this long is stuck: bookmarks come every minute, and a watch ends after five.
pub const WATCH_STUCK_TIMEOUT: Duration = Duration::from_mins(10);
/// Silence after which a watch restarts and its index may be stale; above the bookmark interval.
pub const WATCH_SILENCE_LIMIT: Duration = Duration::from_secs(90);
const MAX_ERROR_BYTES: usize = 300;

/// Health of everything that the process depends on.
#[derive(Default, derive_more::Debug)]
#[debug("Health {{ failures: {:?}, .. }}", self.readiness_failures())]
pub struct Health(Mutex<HealthState>);

#[derive(Default)]
struct HealthState {
    /// Watches by plural of their resource.
    watches: BTreeMap<&'static str, WatchHealth>,
    /// Freshness of the same watches, also of those that are added later.
    freshness: BTreeMap<&'static str, Arc<Freshness>>,
    /// Other unmet dependencies with their messages.
    unmet: BTreeMap<&'static str, String>,
    liveness_checks: Vec<Check>,
    readiness_checks: Vec<Check>,
    stopping: bool,
    /// Watches that have listed once do not count for readiness.
    serves_stale: bool,
}

/// Returns a description of the problem, if there is one.
type Check = Box<dyn Fn() -> Option<String> + Send + Sync>;

struct WatchHealth {
    /// Name of the resource with its group.
    full: String,
    listed: bool,
    /// The last failure, and the time of the first one since the last response.
    failure: Option<(WatchFailure, Instant)>,
    /// Time of the last attempt or response.
    last_attempt_at: Instant,
    last_response_at: Instant,
    freshness: Arc<Freshness>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchFailure {
    /// The API server does not know the resource.
    NotInstalled,
    Forbidden(String),
    Unreachable(String),
    /// Any other error response of the API server.
    Refused(String),
}

impl Health {
    /// Adds a watch, which must list once before readiness. `full` is the resource with its group.
    pub fn add_watch(&self, resource: &'static str, full: String) {
        let now = Instant::now();
        let watch = WatchHealth {
            full,
            listed: false,
            failure: None,
            last_attempt_at: now,
            last_response_at: now,
            freshness: self.freshness(resource),
        };
        watch.update_freshness();
        self.0.lock().watches.insert(resource, watch);
    }

    /// Records a response or an event of a list or watch.
    pub fn watch_heard(&self, resource: &str) {
        self.with_watch(resource, |watch| {
            watch.last_response_at = watch.last_attempt_at;
            watch.failure = None;
        });
    }

    pub fn watch_attempted(&self, resource: &str) {
        self.with_watch(resource, |_| {});
    }

    /// Records the failure of a list or watch. Consecutive failures count from the first.
    pub fn watch_failed(&self, resource: &str, failure: WatchFailure) {
        self.with_watch(resource, |watch| {
            let since = watch.failure.take();
            let since = since.map_or(watch.last_attempt_at, |(_, since)| since);
            watch.failure = Some((failure, since));
        });
    }

    /// Records that a complete list was indexed.
    pub fn watch_listed(&self, resource: &str) {
        self.with_watch(resource, |watch| watch.listed = true);
    }

    /// Records something about a watch, which is a sign of life.
    fn with_watch(&self, resource: &str, change: impl FnOnce(&mut WatchHealth)) {
        if let Some(watch) = self.0.lock().watches.get_mut(resource) {
            watch.last_attempt_at = Instant::now();
            change(watch);
            watch.update_freshness();
        }
    }

    /// Freshness of this watch's index, to be read without a lock.
    pub fn freshness(&self, resource: &'static str) -> Arc<Freshness> {
        self.0.lock().freshness.entry(resource).or_default().clone()
    }

    pub fn set_unmet(&self, what: &'static str, message: String) {
        self.0.lock().unmet.insert(what, message);
    }

    pub fn clear_unmet(&self, what: &'static str) {
        self.0.lock().unmet.remove(what);
    }

    pub fn add_liveness_check(&self, check: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.lock().liveness_checks.push(Box::new(check));
    }

    /// Adds a readiness check. It runs with each readiness probe.
    pub fn add_readiness_check(&self, check: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.lock().readiness_checks.push(Box::new(check));
    }

    /// A failing watch that has listed once is only a warning: a gateway serves from its index.
    pub fn serve_while_stale(&self) {
        self.0.lock().serves_stale = true;
    }

    pub fn begin_shutdown(&self) {
        self.0.lock().stopping = true;
    }

    /// Reasons for which the process is not ready. A standby is ready.
    pub fn readiness_failures(&self) -> Vec<String> {
        let state = self.0.lock();
        if state.stopping {
            return vec!["shutting down".into()];
        }
        let mut failures: Vec<_> = state.unmet.values().cloned().collect();
        failures.extend(state.watch_problems(false));
        failures.extend(state.readiness_checks.iter().filter_map(|check| check()));
        failures
    }

    /// Failures of watches that do not count for readiness.
    pub fn warnings(&self) -> Vec<String> {
        self.0.lock().watch_problems(true)
    }

    pub fn liveness_failures(&self) -> Vec<String> {
        let state = self.0.lock();
        let stuck = state.watches.iter().filter_map(|(resource, watch)| {
            let silent = watch.last_attempt_at.elapsed();
            let seconds = silent.as_secs();
            (silent > WATCH_STUCK_TIMEOUT)
                .then(|| format!("the watch of {resource} has been stuck for {seconds} s"))
        });
        let checks = state.liveness_checks.iter().filter_map(|check| check());
        stuck.chain(checks).collect()
    }

    /// Time since the last response or event of each watch.
    pub fn watch_ages(&self) -> Vec<(&'static str, Duration)> {
        let state = self.0.lock();
        let ages = state.watches.iter();
        ages.map(|(resource, watch)| (*resource, watch.last_response_at.elapsed()))
            .collect()
    }
}

impl WatchHealth {
    /// The index may be stale while the watch fails or is silent.
    fn update_freshness(&self) {
        match self.failure {
            None => (self.freshness).set_fresh_until(self.last_response_at + WATCH_SILENCE_LIMIT),
            Some(_) => self.freshness.set_stale(),
        }
    }
}

impl HealthState {
    /// Problems of the watches that count for readiness, or of those from which stale data is
    /// served. An unreachable API server is reported once, since the first watch missed it.
    fn watch_problems(&self, stale: bool) -> Vec<String> {
        let watches = self.watches.iter();
        let watches = watches.filter(|(_, watch)| (self.serves_stale && watch.listed) == stale);
        let (mut problems, mut unreachable) = (Vec::new(), None::<(Instant, &str)>);
        for (resource, watch) in watches {
            problems.extend(match &watch.failure {
                Some((WatchFailure::NotInstalled, _)) if watch.full.contains('.') => {
                    Some(format!("CRD {} is not installed", watch.full))
                }
                Some((WatchFailure::NotInstalled, _)) => {
                    Some(format!("the resource {} is not installed", watch.full))
                }
                Some((WatchFailure::Forbidden(error), _)) => {
                    Some(format!("permission denied: list {resource}: {error}"))
                }
                Some((WatchFailure::Refused(error), _)) => {
                    Some(format!("cannot list {resource}: {error}"))
                }
                Some((WatchFailure::Unreachable(error), since)) => {
                    if unreachable.is_none_or(|(first, _)| *since < first) {
                        unreachable = Some((*since, error));
                    }
                    None
                }
                None if !watch.listed => Some(format!("{resource} have not been listed yet")),
                None => None,
            });
        }
        if let Some((since, error)) = unreachable {
            let seconds = since.elapsed().as_secs();
            let problem = format!("the API server has not responded for {seconds} s: {error}");
            problems.insert(0, problem);
        }
        problems
    }
}

impl From<&watcher::Error> for WatchFailure {
    fn from(error: &watcher::Error) -> Self {
        let cut = |text: String| text[..text.floor_char_boundary(MAX_ERROR_BYTES)].to_owned();
        let status = match (error, watch_cause(error)) {
            (watcher::Error::WatchError(status), _) | (_, Some(kube::Error::Api(status))) => status,
            (_, Some(cause)) => return Self::Unreachable(cut(error_text(cause))),
            (_, None) => return Self::Refused(cut(watch_error_text(error))),
        };
        match status.code {
            404 => Self::NotInstalled,
            401 | 403 => Self::Forbidden(cut(status_text(status))),
            _ => Self::Refused(cut(status_text(status))),
        }
    }
}
