//! Health of the process for people and kubelet probes.
//!
//! *Ready* needs the API server, its resources and the permissions. *Alive* needs only this
//! process: its watches run and its queue moves. A restart cannot bring back an API server; it
//! would only drop the indexes.

#[cfg(test)]
mod tests;
mod watch_health;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use watch_health::WatchFailure;
use watch_health::WatchHealth;

/// Silence after which a watch is stuck. The API server sends bookmarks about every minute, and a
/// watch ends after five.
pub const WATCH_STUCK_TIMEOUT: Duration = Duration::from_mins(10);

/// Health of everything that the process depends on.
#[derive(Default)]
pub struct Health(Mutex<HealthState>);

#[derive(Default)]
struct HealthState {
    /// Watches by plural of their resource.
    watches: BTreeMap<&'static str, WatchHealth>,
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

impl Health {
    /// Adds a watch. It must list once before the process is ready. `full` is the resource's name
    /// with its group.
    pub fn add_watch(&self, resource: &'static str, full: String) {
        let watch = WatchHealth::new(resource, full, Instant::now());
        self.0.lock().watches.insert(resource, watch);
    }

    /// Records a response or an event of a list or watch.
    pub fn watch_heard(&self, resource: &str) {
        self.with_watch(resource, |watch| watch.heard(Instant::now()));
    }

    /// Records the start of a list or watch.
    pub fn watch_attempted(&self, resource: &str) {
        self.with_watch(resource, |watch| watch.tried(Instant::now()));
    }

    /// Records the failure of a list or watch.
    pub fn watch_failed(&self, resource: &str, failure: WatchFailure) {
        self.with_watch(resource, |watch| watch.failed(failure, Instant::now()));
    }

    /// Records that a complete list was indexed.
    pub fn watch_listed(&self, resource: &str) {
        self.with_watch(resource, WatchHealth::listed);
    }

    fn with_watch(&self, resource: &str, change: impl FnOnce(&mut WatchHealth)) {
        if let Some(watch) = self.0.lock().watches.get_mut(resource) {
            change(watch);
        }
    }

    /// Returns whether this watch fails at present, so that its index may be stale.
    pub fn is_watch_failing(&self, resource: &str) -> bool {
        let state = self.0.lock();
        state
            .watches
            .get(resource)
            .is_some_and(WatchHealth::is_failing)
    }

    /// Records an unmet dependency.
    pub fn set_unmet(&self, what: &'static str, message: String) {
        self.0.lock().unmet.insert(what, message);
    }

    /// Records that a dependency is met.
    pub fn clear_unmet(&self, what: &'static str) {
        self.0.lock().unmet.remove(what);
    }

    pub fn add_liveness_check(&self, check: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.lock().liveness_checks.push(Box::new(check));
    }

    /// Adds a readiness check. It runs with each readiness probe.
    pub fn add_readiness_check(
        &self,
        failures: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) {
        self.0.lock().readiness_checks.push(Box::new(failures));
    }

    /// Keeps the process ready when a watch fails that has listed once: a gateway serves from its
    /// index. What fails is a warning then.
    pub fn serve_while_stale(&self) {
        self.0.lock().serves_stale = true;
    }

    /// Records that the process is shutting down.
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
        failures.extend(state.watch_problems(|watch| !state.is_served_stale(watch)));
        failures.extend(state.readiness_checks.iter().filter_map(|check| check()));
        failures
    }

    /// Failures of watches that do not count for readiness.
    pub fn warnings(&self) -> Vec<String> {
        let state = self.0.lock();
        state.watch_problems(|watch| state.is_served_stale(watch))
    }

    /// Reasons for which the process is not alive.
    pub fn liveness_failures(&self) -> Vec<String> {
        let state = self.0.lock();
        let now = Instant::now();
        let watches = state.watches.values().filter_map(|watch| watch.stuck(now));
        let liveness_checks = state.liveness_checks.iter().filter_map(|check| check());
        watches.chain(liveness_checks).collect()
    }

    /// Time since the last response or event of each watch.
    pub fn watch_ages(&self) -> Vec<(&'static str, Duration)> {
        let state = self.0.lock();
        let ages = state.watches.iter();
        ages.map(|(resource, watch)| (*resource, watch.age(Instant::now())))
            .collect()
    }
}

impl HealthState {
    fn is_served_stale(&self, watch: &WatchHealth) -> bool {
        self.serves_stale && watch.has_listed()
    }

    /// Problems of the watches that `counts` selects.
    fn watch_problems(&self, counts: impl Fn(&WatchHealth) -> bool) -> Vec<String> {
        let watches: Vec<_> = self
            .watches
            .values()
            .filter(|watch| counts(watch))
            .collect();
        let problems = watches.iter().filter_map(|watch| watch.readiness_failure());
        Self::unreachable(&watches)
            .into_iter()
            .chain(problems)
            .collect()
    }

    /// Reports an unreachable API server once, since the first watch missed it.
    fn unreachable(watches: &[&WatchHealth]) -> Option<String> {
        let since = watches.iter().filter_map(|watch| watch.unreachable_since());
        let (since, error) = since.min_by_key(|(since, _)| *since)?;
        let seconds = since.elapsed().as_secs();
        Some(format!(
            "the API server has not responded for {seconds} s: {error}"
        ))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("failures", &self.readiness_failures())
            .finish_non_exhaustive()
    }
}
