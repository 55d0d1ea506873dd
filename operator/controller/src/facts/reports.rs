//! Reports of probes, idle checks and saves about one run of a container.

use crds::contract::persistence::KeptState;
use jiff::Timestamp;

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
