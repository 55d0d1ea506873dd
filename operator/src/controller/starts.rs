//! How long starts take: from the moment this process first saw that a sandbox is to run until it
//! is ready. Timestamps in a status have whole seconds, a warm start takes milliseconds; so the
//! beginnings live here. Starts that another process began are not measured.

use std::collections::HashMap;
use std::time::Duration;

use crds::sandbox::Phase;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::index::{Entry, Key};

/// Starts that are measured at once. Beyond that some go unmeasured.
const MEASURED: usize = 16_384;

/// Starts under way.
#[derive(Debug, Default)]
pub(super) struct Starts(Mutex<HashMap<Key, Begun>>);

#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Instant,
    kind: &'static str,
}

impl Starts {
    /// Takes in what a sandbox was before and after a pass that was due at `due`; `None` is gone.
    /// How long its start took, if it has just ended well.
    pub(super) fn follow(
        &self,
        key: &Key,
        before: Option<&Entry>,
        after: Option<&Entry>,
        due: Instant,
    ) -> Option<(&'static str, Duration)> {
        let mut begun = self.0.lock();
        let Some(after) = after.filter(|a| is_starting(a.status.phase)) else {
            begun.remove(key);
            return None;
        };
        let before = before?;
        if let Some(kind) = kind(before.status.phase)
            && begun.len() < MEASURED
        {
            let fresh = Begun { at: due, kind };
            begun.entry(after.key.clone()).or_insert(fresh);
        }
        if after.status.phase != Phase::Running {
            return None;
        }
        let begun = begun.remove(&after.key)?;
        Some((begun.kind, begun.at.elapsed()))
    }
}

/// Which start it is that leads out of this phase.
fn kind(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::Pending => Some("created"),
        Phase::Pausing | Phase::Paused | Phase::Stopped | Phase::Failed => Some("resumed"),
        Phase::Starting | Phase::Running => None,
    }
}

fn is_starting(phase: Phase) -> bool {
    matches!(phase, Phase::Pending | Phase::Starting | Phase::Running)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::keys::Keys;

    fn entry(phase: &str) -> Entry {
        let sandbox = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": {},
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": phase},
        });
        let keys = Keys::derive(&[1; 32]).unwrap();
        Entry::read(&serde_json::from_value(sandbox).unwrap(), &keys).unwrap()
    }

    /// What is measured while a sandbox goes through these phases, a second each.
    async fn measured(phases: &[&str]) -> Vec<(&'static str, u64)> {
        let starts = Starts::default();
        let mut all = Vec::new();
        for pair in phases.windows(2) {
            let due = Instant::now();
            advance(Duration::from_secs(1)).await;
            let took = starts.follow(
                &entry(pair[0]).key,
                Some(&entry(pair[0])),
                Some(&entry(pair[1])),
                due,
            );
            all.extend(took.map(|(kind, took)| (kind, took.as_secs())));
        }
        assert!(starts.0.lock().len() <= 1);
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_is_measured_from_its_first_pass() {
        let cold = ["Pending", "Starting", "Starting", "Running", "Running"];
        assert_eq!(measured(&cold).await, [("created", 3)]);
        let silent = ["Pending", "Pending", "Running"];
        assert_eq!(measured(&silent).await, [("created", 2)]);
        let again = ["Running", "Pausing", "Paused", "Starting", "Running"];
        assert_eq!(measured(&again).await, [("resumed", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_elsewhere_or_ended_badly_is_not_measured() {
        assert!(
            measured(&["Starting", "Running", "Starting", "Running"])
                .await
                .is_empty()
        );
        let failed = ["Pending", "Starting", "Failed", "Starting", "Running"];
        assert_eq!(measured(&failed).await, [("resumed", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_what_is_gone() {
        let starts = Starts::default();
        let (pending, now) = (entry("Pending"), Instant::now());
        starts.follow(&pending.key, Some(&pending), Some(&pending), now);
        assert_eq!(starts.0.lock().len(), 1);
        starts.follow(&pending.key, Some(&pending), None, now);
        assert_eq!(starts.0.lock().len(), 0);
        // It may be out of the index before anybody looks.
        starts.follow(&pending.key, Some(&pending), Some(&pending), now);
        starts.follow(&pending.key, None, None, now);
        assert!(starts.0.lock().is_empty());
    }
}
