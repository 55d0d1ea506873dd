//! Facts that the planner decides on, as plain values without Kubernetes types.

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::PoolSnapshot;
use jiff::Timestamp;

pub use self::annotations::*;
pub use self::container::{Container, ContainerState, StartProblem, StartProblemKind};
pub use self::pod::{PodFacts, PodIdentity, PodPhase, ResizeProblem};
pub use self::reports::{ContainerRun, IdleReport, ProbeResult, RunStart, SaveProgress};
pub(crate) use self::resize::RESIZED;
pub use self::source::{SnapshotIdentity, SourceState, SourceVolume};

mod annotations;
mod container;
mod pod;
mod preparation;
mod reports;
mod resize;
mod source;
pub mod spec_revision;

/// Facts about one sandbox at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub pod: Option<PodFacts>,
    /// Another Pod of the sandbox, which has to go.
    pub surplus: Option<PodFacts>,
    /// Result of this process's readiness probe for this container run. `None`: no response yet.
    pub readiness: Option<ProbeResult>,
    /// State and processes that the container run began with.
    pub start: RunStart,
    /// Save of this container run before a pause.
    pub save: Option<SaveProgress>,
    /// Result of the last idle check.
    pub idle: Option<IdleReport>,
    /// Snapshot that the sandbox is to begin with.
    pub source: SourceState,
    /// The pool of the spec does not exist.
    pub pool_missing: bool,
    /// Current revision of the pool.
    pub pool_revision: Option<String>,
    /// Fields that the pool in the spec supplies now.
    pub pool: Option<Arc<PoolSnapshot>>,
    /// Warm Pods for the sandbox, if it has no Pod.
    pub warm: WarmSupply,
    /// PVC of a Pod that was warm, which has become that of the sandbox.
    pub adopted_claim: Option<String>,
    /// A Pod of the sandbox was deleted recently.
    pub had_lost_pod: bool,
    pub quota: QuotaDecision,
    /// Number of Pods that this process has created ahead of the resume from the present pause.
    pub waiting_pods: u32,
    /// A lost Pod is not replaced before this time.
    pub replace_at: Option<Timestamp>,
    /// Terminating Pod of a deleted Sandbox of the same name.
    pub orphan: Option<PodFacts>,
    /// The Pod was created from another spec.
    pub spec_changed: bool,
    /// Time at which this process last wrote another message of the status.
    pub message_written_at: Option<Timestamp>,
    /// Number of Sandboxes in the cluster that start now.
    pub starts_in_progress: usize,
    /// The `NetworkPolicy` of the namespace has to be checked.
    pub isolation_due: bool,
}

/// Warm Pods for a sandbox without a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WarmSupply {
    /// No pool fits, or those that do leave the sandbox a Pod of its own.
    #[default]
    None,
    Ready(WarmMatch),
    /// A pool fits and has no warm Pod for the sandbox. After `max_wait` the sandbox gets a Pod of
    /// its own; `None`: it is refused.
    Exhausted {
        pool: String,
        max_wait: Option<Duration>,
    },
}

/// Warm Pods that a sandbox can claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmMatch {
    /// Name of their pool.
    pub pool: String,
    pub shape: String,
}

impl Facts {
    /// Pod with this uid among those that a plan may delete.
    pub fn find_pod(&self, uid: &str) -> Option<&PodFacts> {
        let mut pods = self.pod.iter().chain(&self.surplus).chain(&self.orphan);
        pods.find(|pod| pod.uid == uid)
    }
}

/// Decision of the API key's quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum QuotaDecision {
    #[default]
    Admitted,
    /// Waits for quota, with the reason.
    Queued(String),
    /// Requests more than the quota allows in total.
    Exceeded(String),
}

#[cfg(test)]
mod tests;
