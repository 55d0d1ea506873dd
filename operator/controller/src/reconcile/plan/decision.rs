//! Input and result of a decision, shared by all parts of the planner.

use std::time::Duration;

use crds::conditions::Reason;
use crds::contract::control::Probe;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::SandboxStatus;
use jiff::{SignedDuration, Timestamp};

use crate::config::Deadlines;
use crate::facts::WarmMatch;
use crate::reconcile::build::persistence::PersistenceObstacle;
use shared::index::Entry;

/// Terminations of the command, or losses of the Pod, before first readiness that fail a start.
pub(super) const CRASH_LOOP_THRESHOLD: u32 = 3;

/// Loss of a Pod that was warm and cannot have the resources of its sandbox. The next one is made
/// with them.
pub(super) const RESIZE_FAILED: &str = "ResizeInfeasible";

/// Loss of a claimed Pod whose supervisor does not answer.
pub(super) const CLAIMED_POD_SILENT: &str = "ClaimedPodSilent";
/// Losses after which the sandbox gets a Pod of its own instead of the next warm one.
pub(super) const MAX_SILENT_CLAIMS: u32 = 2;

/// Input of one decision besides the facts.
#[derive(Debug, Clone)]
pub struct PlanInput<'a> {
    /// The object, its spec completed from the pool.
    pub entry: &'a Entry,
    pub deadlines: Deadlines,
    pub url: &'a str,
    /// Condition of readiness. The supervisor evaluates it; without one only the port counts.
    pub probe: Probe,
    /// Level that a pause is to keep.
    pub level: PersistenceLevel,
    /// Reason for which Pods of this spec keep less than it asks for.
    pub persistence_obstacle: Option<PersistenceObstacle>,
    /// Names of the plugins of the command.
    pub plugins: &'a [String],
}

impl PlanInput<'_> {
    /// Returns whether no status has been written yet.
    pub(super) fn has_no_status(&self) -> bool {
        self.entry.status.observed_generation.is_none()
    }
}

/// One write to the API server. The actions of a plan are applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates or restores the `NetworkPolicy` of the namespace.
    IsolateNamespace,
    /// Creates the workspace PVC if it does not exist.
    CreateClaim,
    /// Creates the Pod. `restarts` counts those before it.
    CreatePod {
        restarts: u32,
    },
    /// Creates the Pod of the next resume.
    CreateWaitingPod {
        paused_at: Timestamp,
    },
    /// Claims a warm Pod, or creates one if all have been claimed meanwhile.
    ClaimPod {
        warm: WarmMatch,
        restarts: u32,
    },
    /// Makes the sandbox the owner of the PVC of a Pod that was warm.
    AdoptClaim {
        name: String,
    },
    /// Gives a Pod that was warm the resources of the sandbox.
    ResizePod,
    /// Creates the environment Secret that a Pod without a supervisor lacks.
    CreateSecret,
    /// Reads the log of the failed container into the status.
    CaptureLog,
    DeletePod {
        uid: String,
        grace: DeletionGrace,
    },
    /// Deletes the workspace PVC of this name.
    DeleteClaim {
        name: String,
    },
    /// Removes the sealed environment from the spec of a stopped Sandbox.
    DropSealedEnv,
    DeleteSandbox,
}

/// Grace period of a Pod deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionGrace {
    /// The grace period in the Pod spec.
    PodDefault,
    /// None: the node is lost and would never confirm the deletion.
    Force,
}

/// Result of one decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Probe the readiness of the sandbox.
    pub probe_readiness: bool,
    /// Have the state of the sandbox saved before its Pod is deleted.
    pub save: bool,
    /// Query the idle time.
    pub check_idle: bool,
    /// Write a changed status now. Routine details of the first seconds of a start are not
    /// written: the next status replaces them.
    pub write_status: bool,
    /// A replacement of a lost Pod is created: the replacement backoff counts it.
    pub pod_lost: bool,
    pub status: SandboxStatus,
    /// Time of the next reconcile if nothing changes before.
    pub requeue_at: Option<Timestamp>,
}

/// Rejection of an action by the API server or by a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionRejection {
    pub reason: Reason,
    pub message: String,
    /// The same spec will be rejected again.
    pub is_terminal: bool,
}

/// Kind of a failure, as far as clients distinguish it in `podStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    CrashLoop,
    Other,
}

/// `start + limit`; `None` without a limit.
pub(super) fn deadline_after(start: Timestamp, limit: Option<Duration>) -> Option<Timestamp> {
    let limit = SignedDuration::try_from(limit?).ok()?;
    start.checked_add(limit).ok()
}
