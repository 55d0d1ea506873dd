//! Whether this process can do its work, and what it lacks: an answer for people and probes.
//!
//! *Ready* needs the API server, its resources and the permissions. *Alive* needs nothing but this
//! process: its watches try or listen, its queue moves. A restart would not bring a missing API
//! server back, it would only throw away what is known.

mod part;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use part::Part;
pub use part::Trouble;

/// A watch without a sign of life for so long is stuck. The API server sends bookmarks about every
/// minute, and a watch ends by itself after five.
pub const STUCK_AFTER: Duration = Duration::from_mins(10);

/// State of everything the process depends on.
#[derive(Default)]
pub struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    /// Watches, by the plural of what they watch.
    watches: BTreeMap<&'static str, Part>,
    /// Other needs that are not met, with what to say of each.
    lacks: BTreeMap<&'static str, String>,
    checks: Vec<Check>,
    needs: Vec<Check>,
    stopping: bool,
}

/// Says what is wrong, if anything is.
type Check = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl Health {
    /// A watch begins. It has to list everything once before the process is ready. `full` is the
    /// resource's name with its group.
    pub fn begin(&self, resource: &'static str, full: String) {
        let part = Part::new(resource, full, Instant::now());
        self.0.lock().watches.insert(resource, part);
    }

    /// The API server answered a list or a watch, or said something on one.
    pub fn heard(&self, resource: &str) {
        self.part(resource, |part| part.heard(Instant::now()));
    }

    /// A list or a watch is being tried.
    pub fn tried(&self, resource: &str) {
        self.part(resource, |part| part.tried(Instant::now()));
    }

    /// A list or a watch failed.
    pub fn failed(&self, resource: &str, trouble: Trouble) {
        self.part(resource, |part| part.failed(trouble, Instant::now()));
    }

    /// A complete list has been taken in.
    pub fn listed(&self, resource: &str) {
        self.part(resource, Part::listed);
    }

    fn part(&self, resource: &str, change: impl FnOnce(&mut Part)) {
        if let Some(part) = self.0.lock().watches.get_mut(resource) {
            change(part);
        }
    }

    /// Whether this watch fails at present, so that what it saw may be old.
    pub fn falters(&self, resource: &str) -> bool {
        let state = self.0.lock();
        state.watches.get(resource).is_some_and(Part::falters)
    }

    /// Something else is missing.
    pub fn lacks(&self, what: &'static str, message: String) {
        self.0.lock().lacks.insert(what, message);
    }

    /// It is no longer missing.
    pub fn has(&self, what: &'static str) {
        self.0.lock().lacks.remove(what);
    }

    /// Adds a check of liveness.
    pub fn check(&self, check: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.lock().checks.push(Box::new(check));
    }

    /// Also asks this for what keeps the process from its work, whenever somebody wants to know.
    pub fn need(&self, missing: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.lock().needs.push(Box::new(missing));
    }

    /// The process is about to end.
    pub fn stop(&self) {
        self.0.lock().stopping = true;
    }

    /// What keeps the process from its work; empty if it is ready. A standby is ready.
    pub fn missing(&self) -> Vec<String> {
        let state = self.0.lock();
        if state.stopping {
            return vec!["shutting down".into()];
        }
        let now = Instant::now();
        let mut missing: Vec<_> = state.lacks.values().cloned().collect();
        missing.extend(state.unreachable(now));
        missing.extend(state.watches.values().filter_map(Part::lacks));
        missing.extend(state.needs.iter().filter_map(|need| need()));
        missing
    }

    /// What is stuck in this process; empty if it is alive.
    pub fn stuck(&self) -> Vec<String> {
        let state = self.0.lock();
        let now = Instant::now();
        let watches = state.watches.values().filter_map(|part| part.stuck(now));
        let checks = state.checks.iter().filter_map(|check| check());
        watches.chain(checks).collect()
    }

    /// Time since the API server last said anything, of each watch.
    pub fn ages(&self) -> Vec<(&'static str, Duration)> {
        let state = self.0.lock();
        let ages = state.watches.iter();
        ages.map(|(resource, part)| (*resource, part.age(Instant::now())))
            .collect()
    }
}

impl State {
    /// The API server is one, however many watches miss it: said once, since the first missed it.
    fn unreachable(&self, now: Instant) -> Option<String> {
        let since = self.watches.values().filter_map(Part::unreachable_since);
        let (since, error) = since.min_by_key(|(since, _)| *since)?;
        let seconds = now.duration_since(since).as_secs();
        Some(format!(
            "the API server has not answered for {seconds} s: {error}"
        ))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("missing", &self.missing())
            .finish_non_exhaustive()
    }
}
