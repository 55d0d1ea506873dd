//! Reports of probes, idle checks and saves about one run of a container.

use crds::contract::control::ReadyReport;
use crds::contract::persistence::{KeptState, PersistenceLevel};
use jiff::Timestamp;

/// Limit of an id of processes in bytes, as in the CRD.
const MAX_PROCESSES_ID_BYTES: usize = 64;

/// Result of a readiness probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    Ready,
    /// Running but not ready, with the reason if known.
    NotReady(Option<String>),
    /// The supervisor was initialized for another Sandbox.
    OtherOwner,
    /// The supervisor of a claimed Pod has not answered at all.
    Silent,
}

/// State and processes that a run of the container began with, as its supervisor reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStart {
    pub restored: Option<KeptState>,
    /// Tells whether processes went on.
    pub processes_id: Option<String>,
}

impl RunStart {
    /// Bounds what a sandbox may have written.
    pub fn of(report: &ReadyReport) -> Self {
        let is_id = |id: &String| {
            let mut bytes = id.bytes();
            let is_text = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            is_text && (1..=MAX_PROCESSES_ID_BYTES).contains(&id.len())
        };
        Self {
            restored: report.restored.clone().map(KeptState::bounded),
            processes_id: report.processes_id.clone().filter(is_id),
        }
    }

    pub fn has_saved_processes(&self) -> bool {
        let restored = self.restored.as_ref();
        restored.is_some_and(|restored| restored.level == PersistenceLevel::Memory)
    }
}

/// Save of a sandbox before its Pod is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveProgress {
    Saving,
    /// State that was kept, and the time. `None`: the command had not begun, so that there was nothing
    /// new.
    Done(Option<KeptState>, Timestamp),
}

/// Result of an idle check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleReport {
    pub checked_at: Timestamp,
    /// `None`: unknown.
    pub idle_since: Option<Timestamp>,
}

/// One run of the sandbox container. Facts about one run do not apply to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRun {
    pub pod_uid: String,
    pub restarts: u32,
    /// See [`PodFacts::node_silent`](super::PodFacts::node_silent): probe results from before the
    /// node went silent no longer count.
    pub node_silent: bool,
}
