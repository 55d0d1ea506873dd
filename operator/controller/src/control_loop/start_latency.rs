//! Measures start latency: from the first reconcile that is to start a sandbox until it is ready.
//! Status timestamps have whole seconds and a warm start takes milliseconds, so the start times are
//! kept in memory. Starts that another process began are not measured.

use std::collections::HashMap;
use std::time::Duration;

use crds::sandbox::Phase;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::per_sandbox::PerSandbox;
use shared::index::{Entry, Key};

/// Maximum of starts that are measured at once; others are not measured.
const MAX_TRACKED_STARTS: usize = 16_384;

/// Starts in progress.
#[derive(Debug, Default)]
pub(crate) struct StartTimer(Mutex<HashMap<Key, StartInProgress>>);

#[derive(Debug, Clone, Copy)]
struct StartInProgress {
    at: Instant,
    kind: &'static str,
}

impl StartTimer {
    /// Compares a sandbox before and after a reconcile that was due at `due`; `None` means deleted.
    /// Returns kind and latency of a start that has just succeeded.
    pub(crate) fn observe(
        &self,
        before: &Entry,
        after: &Entry,
        due: Instant,
    ) -> Option<(&'static str, Duration)> {
        let mut started = self.0.lock();
        if !is_starting(after.status.phase) {
            started.remove(&after.key);
            return None;
        }
        if let Some(kind) = kind(before.status.phase)
            && started.len() < MAX_TRACKED_STARTS
        {
            let fresh = StartInProgress { at: due, kind };
            started.entry(after.key.clone()).or_insert(fresh);
        }
        if after.status.phase != Phase::Running {
            return None;
        }
        let started = started.remove(&after.key)?;
        Some((started.kind, started.at.elapsed()))
    }
}

impl PerSandbox for StartTimer {
    fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// Kind of a start from this phase.
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
    use shared::keys::Keys;

    fn entry(phase: &str) -> Entry {
        let sandbox = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": {},
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": phase},
        });
        let keys = Keys::derive(&[1; 32]).unwrap();
        Entry::read(&serde_json::from_value(sandbox).unwrap(), &keys).unwrap()
    }

    /// Latencies measured while a sandbox passes through these phases, one second each.
    async fn measured(phases: &[&str]) -> Vec<(&'static str, u64)> {
        let starts = StartTimer::default();
        let mut all = Vec::new();
        for pair in phases.windows(2) {
            let due = Instant::now();
            advance(Duration::from_secs(1)).await;
            let took = starts.observe(&entry(pair[0]), &entry(pair[1]), due);
            all.extend(took.map(|(kind, took)| (kind, took.as_secs())));
        }
        assert!(starts.0.lock().len() <= 1);
        all
    }

    #[tokio::test(start_paused = true)]
    async fn start_latency_counts_from_first_reconcile() {
        let cold = ["Pending", "Starting", "Starting", "Running", "Running"];
        assert_eq!(measured(&cold).await, [("created", 3)]);
        let silent = ["Pending", "Pending", "Running"];
        assert_eq!(measured(&silent).await, [("created", 2)]);
        let again = ["Running", "Pausing", "Paused", "Starting", "Running"];
        assert_eq!(measured(&again).await, [("resumed", 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn start_latency_skips_foreign_and_failed_starts() {
        assert!(
            measured(&["Starting", "Running", "Starting", "Running"])
                .await
                .is_empty()
        );
        let failed = ["Pending", "Starting", "Failed", "Starting", "Running"];
        assert_eq!(measured(&failed).await, [("resumed", 2)]);
    }
}
