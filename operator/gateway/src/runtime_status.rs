//! Derives `status` and `pod_status` from an index entry (`docs/specs/runtime-api.md`, section 2).
//!
//! The desired state comes first: after `/pause` every read answers `paused`, although the Pod is
//! still terminating. `running` requires that requests are answered.

use crds::sandbox::{DesiredState, Phase, PodStatus};
use schemars::JsonSchema;
use serde::Serialize;

use shared::index::Entry;

/// Field `status` of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeStatus {
    Starting,
    Running,
    Paused,
    Stopped,
    Error,
}

/// Status fields that clients act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeState {
    pub lifecycle: RuntimeStatus,
    pub pod: PodStatus,
    /// Explanation for people.
    pub detail: Option<String>,
}

/// Derives the state of a sandbox.
pub fn derive(entry: &Entry) -> RuntimeState {
    let lifecycle = lifecycle(entry);
    // After a requested restart the report describes the failed Pod.
    let reported = entry
        .status
        .pod_status
        .filter(|_| !entry.is_restart_requested());
    RuntimeState {
        lifecycle,
        pod: pod_status(lifecycle, reported),
        detail: detail(lifecycle, entry),
    }
}

/// Returns whether the sandbox is a tombstone.
pub fn is_stopped(entry: &Entry) -> bool {
    lifecycle(entry) == RuntimeStatus::Stopped
}

/// Returns whether a start of the session would create another sandbox.
pub fn is_ended(entry: &Entry) -> bool {
    let lifecycle = lifecycle(entry);
    matches!(lifecycle, RuntimeStatus::Stopped | RuntimeStatus::Error)
}

fn lifecycle(entry: &Entry) -> RuntimeStatus {
    let phase = entry.status.phase;
    match entry.desired_state() {
        _ if entry.deleting || phase == Phase::Stopped => RuntimeStatus::Stopped,
        DesiredState::Stopped => RuntimeStatus::Stopped,
        DesiredState::Paused => RuntimeStatus::Paused,
        // The status describes an earlier spec: the controller has not reconciled this one.
        DesiredState::Running if !entry.is_observed() => RuntimeStatus::Starting,
        DesiredState::Running if entry.is_restart_requested() => RuntimeStatus::Starting,
        DesiredState::Running if phase == Phase::Failed => RuntimeStatus::Error,
        DesiredState::Running if entry.is_ready() => RuntimeStatus::Running,
        DesiredState::Running => RuntimeStatus::Starting,
    }
}

fn pod_status(lifecycle: RuntimeStatus, reported: Option<PodStatus>) -> PodStatus {
    match lifecycle {
        RuntimeStatus::Running => PodStatus::Ready,
        RuntimeStatus::Paused | RuntimeStatus::Stopped => PodStatus::NotFound,
        RuntimeStatus::Error => match reported {
            Some(fatal @ (PodStatus::CrashLoopBackOff | PodStatus::Unknown)) => fatal,
            _ => PodStatus::Failed,
        },
        RuntimeStatus::Starting => match reported.unwrap_or(PodStatus::NotFound) {
            // The Pod is ready, but its address is not known yet.
            PodStatus::Ready => PodStatus::Running,
            // These values would end the client's wait for a Pod that is being replaced.
            PodStatus::Failed | PodStatus::Unknown => PodStatus::Pending,
            other => other,
        },
    }
}

fn detail(lifecycle: RuntimeStatus, entry: &Entry) -> Option<String> {
    if !matches!(lifecycle, RuntimeStatus::Starting | RuntimeStatus::Error) {
        return None;
    }
    let status = &entry.status;
    let reason = || status.reason.map(|reason| reason.to_string());
    status.message.clone().or_else(reason)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use DesiredState::{Paused, Running, Stopped};
    use crds::conditions::Reason;
    use crds::sandbox::{SandboxSpec, SandboxStatus};
    use jiff::{SignedDuration, Timestamp};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use shared::index::Key;

    /// A sandbox that was ready once.
    fn entry(state: DesiredState, phase: Phase, pod_status: Option<PodStatus>) -> Entry {
        Entry {
            key: Key {
                namespace: "ns".into(),
                name: "kqzvbnwmxatyploe".into(),
            },
            uid: "u".into(),
            resource_version: "1".into(),
            generation: 1,
            created_at: None,
            has_sealed_env: false,
            deleting: false,
            wake_at: None,
            runtime_id: "kqzvbnwmxatyploe".into(),
            spec: Arc::new(SandboxSpec {
                state,
                ..SandboxSpec::default()
            }),
            status: SandboxStatus {
                phase,
                pod_status,
                pod_ip: Some("10.0.0.1".into()),
                ready_at: Some(Time(Timestamp::UNIX_EPOCH)),
                ..SandboxStatus::default()
            },
        }
    }

    /// Status and Pod status.
    fn derived(entry: &Entry) -> String {
        let state = derive(entry);
        format!("{:?}, {:?}", state.lifecycle, state.pod)
    }

    #[test]
    fn status_follows_desired_state_phase_and_pod() {
        use PodStatus::{CrashLoopBackOff, Pending, Ready};
        for (state, phase, pod, expected) in [
            (Paused, Phase::Pending, Some(Ready), "Paused, NotFound"),
            (Paused, Phase::Running, Some(Ready), "Paused, NotFound"),
            (Paused, Phase::Pausing, Some(Ready), "Paused, NotFound"),
            (Paused, Phase::Failed, Some(Ready), "Paused, NotFound"),
            (Stopped, Phase::Pending, Some(Ready), "Stopped, NotFound"),
            (Stopped, Phase::Running, Some(Ready), "Stopped, NotFound"),
            (Stopped, Phase::Pausing, Some(Ready), "Stopped, NotFound"),
            (Stopped, Phase::Failed, Some(Ready), "Stopped, NotFound"),
            (Running, Phase::Running, Some(Ready), "Running, Ready"),
            (Running, Phase::Starting, Some(Ready), "Starting, Running"),
            (Running, Phase::Starting, None, "Starting, NotFound"),
            // The Pod status is final only when the start has failed.
            (
                Running,
                Phase::Starting,
                Some(PodStatus::Failed),
                "Starting, Pending",
            ),
            (
                Running,
                Phase::Starting,
                Some(PodStatus::Unknown),
                "Starting, Pending",
            ),
            (
                Running,
                Phase::Starting,
                Some(CrashLoopBackOff),
                "Starting, CrashLoopBackOff",
            ),
            (Running, Phase::Failed, Some(Pending), "Error, Failed"),
            (
                Running,
                Phase::Failed,
                Some(CrashLoopBackOff),
                "Error, CrashLoopBackOff",
            ),
        ] {
            let entry = entry(state, phase, pod);
            assert_eq!(derived(&entry), expected, "{state:?} {phase:?} {pod:?}");
        }
        let mut unreachable = entry(Running, Phase::Running, Some(Ready));
        unreachable.status.pod_ip = None;
        assert_eq!(derive(&unreachable).lifecycle, RuntimeStatus::Starting);
        let mut deleting = entry(Running, Phase::Running, Some(Ready));
        deleting.deleting = true;
        assert_eq!(derive(&deleting).lifecycle, RuntimeStatus::Stopped);
    }

    #[test]
    fn status_is_starting_when_generation_is_not_observed() {
        for phase in [Phase::Running, Phase::Failed] {
            let mut resumed = entry(Running, phase, Some(PodStatus::Ready));
            resumed.generation = 3;
            resumed.status.observed_generation = Some(1);
            assert_eq!(derived(&resumed), "Starting, Running");
            resumed.status.observed_generation = Some(3);
            assert_ne!(derive(&resumed).lifecycle, RuntimeStatus::Starting);
        }
    }

    #[test]
    fn failed_sandbox_is_starting_once_restart_is_requested() {
        let crashed = Some(PodStatus::CrashLoopBackOff);
        let mut failed = entry(Running, Phase::Failed, crashed);
        let at = Timestamp::from_second(100).unwrap();
        failed.status.started_at = Some(Time(at));
        failed.wake_at = Some(at);
        assert_eq!(derive(&failed).lifecycle, RuntimeStatus::Error);
        failed.wake_at = Some(at + SignedDuration::from_secs(1));
        assert_eq!(derived(&failed), "Starting, NotFound");
    }

    #[test]
    fn detail_is_message_or_else_reason() {
        let mut entry = entry(Running, Phase::Starting, None);
        assert_eq!(derive(&entry).detail, None);
        entry.status.reason = Some(Reason::Unschedulable);
        assert_eq!(derive(&entry).detail.as_deref(), Some("Unschedulable"));
        entry.status.message = Some("0/3 nodes".into());
        assert_eq!(derive(&entry).detail.as_deref(), Some("0/3 nodes"));
    }
}
