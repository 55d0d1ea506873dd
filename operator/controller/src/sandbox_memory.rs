//! Knowledge of this process about single Sandboxes beyond their objects. It is dropped with the
//! Sandbox, so that nothing about a deleted one stays behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::{Phase, PoolSnapshot};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::facts::ResizeProblem;
use shared::index::{Entry, Index, Key};

/// Backoff before the second replacement of a lost Pod. The first one is immediate.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// Time without a loss after which the backoff is reset.
const RESET_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Maximum of doublings of the backoff.
const MAX_DOUBLINGS: u32 = 9;

/// State that a component keeps about each Sandbox.
pub(crate) trait PerSandbox: Send + Sync + 'static {
    /// Drops the state of a Sandbox.
    fn forget(&self, key: &Key);
}

/// Owner of all such state.
#[derive(Default)]
pub(crate) struct SandboxStates(Vec<Arc<dyn PerSandbox>>);

impl SandboxStates {
    /// Takes ownership of a component's state and returns a handle to it.
    pub(crate) fn own<T: PerSandbox>(&mut self, state: T) -> Arc<T> {
        let state = Arc::new(state);
        self.0.push(state.clone());
        state
    }

    /// Drops everything about a deleted Sandbox.
    pub(crate) fn forget(&self, key: &Key) {
        for state in &self.0 {
            state.forget(key);
        }
    }
}

/// Memory of earlier reconciles, by Sandbox.
#[derive(Debug, Default)]
pub(crate) struct SandboxMemory(Mutex<HashMap<Key, Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// Error of the last reconcile. A retry that fails in the same way is not logged again.
    error: Option<String>,
    /// Resource version that the controller's report of a rejection created. Its watch event must
    /// not wake the reconcile that backs off.
    own_version: Option<String>,
    /// Number of recent replacements of a lost Pod, and the time of the last one.
    replacements: Option<(u32, Timestamp)>,
    /// Begin of a pause, and number of Pods that were created ahead of its resume.
    waiting_pods: Option<(Timestamp, u32)>,
    /// Pool revision at the time of the claim of a warm Pod.
    claimed_from: Option<Arc<PoolSnapshot>>,
    /// PVC of a Pod that was warm, which the sandbox owns now.
    adopted_claim: Option<String>,
    /// Pod whose resources the API server refused to raise, and why.
    refused_resize: Option<(String, ResizeProblem)>,
    /// Time of the last status write with another message.
    message_written_at: Option<Timestamp>,
    /// Begin and kind of the start in progress. Status timestamps have whole seconds and a warm
    /// start takes milliseconds.
    start: Option<(Instant, &'static str)>,
}

impl SandboxMemory {
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Memory) -> T) -> T {
        act(self.0.lock().entry(key.clone()).or_default())
    }

    /// Records the error of a reconcile. Returns whether it differs from that of the last one.
    pub(crate) fn is_new_error(&self, key: &Key, error: &str) -> bool {
        let last = self.with(key, |memory| memory.error.replace(error.to_owned()));
        last.is_none_or(|last| last != error)
    }

    /// Forgets errors and self-updates of a Sandbox whose reconcile succeeded.
    pub(crate) fn forget_failure(&self, key: &Key) {
        if let Some(memory) = self.0.lock().get_mut(key) {
            (memory.error, memory.own_version) = (None, None);
        }
    }

    /// Records the current version of an object as a self-update. Must be called before the
    /// reconcile ends: keys that are added during a reconcile wait anyway.
    pub(crate) fn record_own_update(&self, key: &Key, index: &Index) {
        let version = index.get(key).map(|entry| entry.resource_version.clone());
        self.with(key, |memory| memory.own_version = version);
    }

    /// Returns whether the last change of an object was a self-update.
    pub(crate) fn is_own_update(&self, key: &Key, index: &Index) -> bool {
        let all = self.0.lock();
        let version = all.get(key).and_then(|memory| memory.own_version.as_ref());
        let entry = index.get(key);
        version.is_some_and(|own| entry.is_some_and(|entry| entry.resource_version == *own))
    }

    /// Records that a Pod was created ahead of the resume from a pause.
    pub(crate) fn record_waiting_pod(&self, key: &Key, paused_at: Timestamp) {
        let count = self.waiting_pods(key, paused_at).saturating_add(1);
        self.with(key, |memory| memory.waiting_pods = Some((paused_at, count)));
    }

    /// Number of Pods that were created ahead of the resume from a pause.
    pub(crate) fn waiting_pods(&self, key: &Key, paused_at: Timestamp) -> u32 {
        let all = self.0.lock();
        let known = all.get(key).and_then(|memory| memory.waiting_pods);
        known.map_or(
            0,
            |(pause, count)| if pause == paused_at { count } else { 0 },
        )
    }

    /// Records the pool revision at the time of a claim.
    pub(crate) fn record_claimed_from(&self, key: &Key, pool: Option<Arc<PoolSnapshot>>) {
        self.with(key, |memory| memory.claimed_from = pool);
    }

    /// Pool revision that the warm Pod of a sandbox was claimed from. A later one is not for it.
    pub(crate) fn claimed_from(&self, key: &Key) -> Option<Arc<PoolSnapshot>> {
        self.0.lock().get(key)?.claimed_from.clone()
    }

    /// Records that the sandbox owns the PVC of a Pod that was warm.
    pub(crate) fn record_adopted_claim(&self, key: &Key, claim: &str) {
        self.with(key, |memory| memory.adopted_claim = Some(claim.to_owned()));
    }

    pub(crate) fn adopted_claim(&self, key: &Key) -> Option<String> {
        self.0.lock().get(key)?.adopted_claim.clone()
    }

    /// Records that the API server refused to raise the resources of a Pod.
    pub(crate) fn record_resize_problem(&self, key: &Key, pod_uid: &str, why: ResizeProblem) {
        let refused = Some((pod_uid.to_owned(), why));
        self.with(key, |memory| memory.refused_resize = refused);
    }

    /// Reason for which the API server refused to raise the resources of this Pod.
    pub(crate) fn resize_problem(&self, key: &Key, pod_uid: &str) -> Option<ResizeProblem> {
        let all = self.0.lock();
        let (uid, problem) = all.get(key)?.refused_resize.as_ref()?;
        (uid == pod_uid).then(|| problem.clone())
    }

    /// Records that the status was written with another message.
    pub(crate) fn record_message(&self, key: &Key, now: Timestamp) {
        self.with(key, |memory| memory.message_written_at = Some(now));
    }

    pub(crate) fn message_written_at(&self, key: &Key) -> Option<Timestamp> {
        self.0.lock().get(key)?.message_written_at
    }

    /// Records that a lost Pod was replaced.
    pub(crate) fn record_replacement(&self, key: &Key, now: Timestamp) {
        self.with(key, |memory| {
            let count = memory
                .recent_replacements(now)
                .map_or(0, |(count, _)| count);
            memory.replacements = Some((count.saturating_add(1), now));
        });
    }

    /// Earliest time of the next replacement of a lost Pod. The backoff keeps a sandbox whose Pods
    /// are lost at once from overloading the cluster.
    pub(crate) fn earliest_replacement(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let (count, last) = self.0.lock().get(key)?.recent_replacements(now)?;
        let doublings = count.saturating_sub(1).min(MAX_DOUBLINGS);
        let delay = INITIAL_BACKOFF * (1 << doublings);
        last.checked_add(delay.min(MAX_BACKOFF)).ok()
    }

    /// Compares a sandbox before and after a reconcile that was due at `due`. Returns kind and
    /// latency of a start that has just succeeded: from the first reconcile that is to start the
    /// sandbox until it is ready. Starts that another process began are not measured.
    pub(crate) fn observe_start(
        &self,
        before: &Entry,
        after: &Entry,
        due: Instant,
    ) -> Option<(&'static str, Duration)> {
        let kind = match before.status.phase {
            Phase::Pending => Some("created"),
            Phase::Pausing | Phase::Paused | Phase::Stopped | Phase::Failed => Some("resumed"),
            Phase::Starting | Phase::Running => None,
        };
        self.with(&after.key, |memory| match after.status.phase {
            Phase::Pending | Phase::Starting => {
                memory.start = memory.start.or(kind.map(|kind| (due, kind)));
                None
            }
            Phase::Running => {
                let start = memory.start.take().or(kind.map(|kind| (due, kind)));
                start.map(|(began, kind)| (kind, began.elapsed()))
            }
            _ => {
                memory.start = None;
                None
            }
        })
    }
}

impl Memory {
    fn recent_replacements(&self, now: Timestamp) -> Option<(u32, Timestamp)> {
        let is_recent = |last: Timestamp| now.duration_since(last) <= RESET_AFTER;
        self.replacements.filter(|(_, last)| is_recent(*last))
    }
}

impl PerSandbox for SandboxMemory {
    fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::tests::{entry_in, key};

    #[test]
    fn forget_reaches_all_owned_states() {
        let mut states = SandboxStates::default();
        let handles = [0, 1].map(|_| states.own(SandboxMemory::default()));
        for memory in &handles {
            assert!(memory.is_new_error(&key("a"), "x") && memory.is_new_error(&key("b"), "x"));
        }
        states.forget(&key("a"));
        for memory in &handles {
            assert!(memory.is_new_error(&key("a"), "x") && !memory.is_new_error(&key("b"), "x"));
        }
    }

    #[test]
    fn repeated_error_is_not_new_until_a_reconcile_succeeds() {
        let (memory, key) = (SandboxMemory::default(), key("a"));
        let new = ["forbidden", "forbidden", "timeout", "forbidden"];
        let new = new.map(|error| memory.is_new_error(&key, error));
        assert_eq!(new, [true, false, true, true]);
        memory.forget_failure(&key);
        assert!(memory.is_new_error(&key, "forbidden"));
    }

    #[test]
    fn backoff_doubles_to_maximum_and_resets() {
        let (memory, key, now) = (SandboxMemory::default(), key("a"), Timestamp::UNIX_EPOCH);
        assert_eq!(memory.earliest_replacement(&key, now), None);
        let mut delays = Vec::new();
        for _ in 0..10 {
            memory.record_replacement(&key, now);
            let next = memory.earliest_replacement(&key, now).unwrap();
            delays.push(next.duration_since(now).as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        let later = now + RESET_AFTER + SignedDuration::from_secs(1);
        assert_eq!(memory.earliest_replacement(&key, later), None);
        memory.record_replacement(&key, later);
        let next = memory.earliest_replacement(&key, later).unwrap();
        assert_eq!(next.duration_since(later), INITIAL_BACKOFF);
    }

    /// Latencies measured while a sandbox passes through these phases, one second each.
    async fn measured(phases: &[Phase]) -> Vec<(&'static str, u64)> {
        let memory = SandboxMemory::default();
        let mut all = Vec::new();
        for pair in phases.windows(2) {
            let due = Instant::now();
            advance(Duration::from_secs(1)).await;
            let took = memory.observe_start(&entry_in(pair[0]), &entry_in(pair[1]), due);
            all.extend(took.map(|(kind, took)| (kind, took.as_secs())));
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn start_latency_counts_from_first_reconcile_of_own_starts() {
        use Phase::{Failed, Paused, Pausing, Pending, Running, Starting};
        let cases: [(&[Phase], &[_]); 5] = [
            (
                &[Pending, Starting, Starting, Running, Running],
                &[("created", 3)],
            ),
            (&[Pending, Pending, Running], &[("created", 2)]),
            (
                &[Running, Pausing, Paused, Starting, Running],
                &[("resumed", 2)],
            ),
            (&[Starting, Running, Starting, Running], &[]),
            (
                &[Pending, Starting, Failed, Starting, Running],
                &[("resumed", 2)],
            ),
        ];
        for (phases, expected) in cases {
            assert_eq!(measured(phases).await, expected, "{phases:?}");
        }
    }
}
