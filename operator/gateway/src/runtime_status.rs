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

    use crds::conditions::Reason;
    use crds::sandbox::{SandboxSpec, SandboxStatus};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use shared::index::Key;

    fn entry(state: DesiredState, status: SandboxStatus) -> Entry {
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
            status,
        }
    }

    fn status(phase: Phase, pod: Option<PodStatus>) -> SandboxStatus {
        SandboxStatus {
            phase,
            pod_status: pod,
            pod_ip: Some("10.0.0.1".into()),
            ready_at: Some(Time(Timestamp::UNIX_EPOCH)),
            ..SandboxStatus::default()
        }
    }

    fn of(state: DesiredState, phase: Phase, pod: Option<PodStatus>) -> (RuntimeStatus, PodStatus) {
        let state = derive(&entry(state, status(phase, pod)));
        (state.lifecycle, state.pod)
    }

    #[test]
    fn status_follows_desired_state_when_paused_or_stopped() {
        use DesiredState::{Paused, Stopped};
        let ready = Some(PodStatus::Ready);
        for phase in [
            Phase::Pending,
            Phase::Running,
            Phase::Pausing,
            Phase::Failed,
        ] {
            assert_eq!(
                of(Paused, phase, ready),
                (RuntimeStatus::Paused, PodStatus::NotFound)
            );
            assert_eq!(
                of(Stopped, phase, ready),
                (RuntimeStatus::Stopped, PodStatus::NotFound)
            );
        }
    }

    #[test]
    fn status_running_requires_ready_entry() {
        use DesiredState::Running;
        let ready = Some(PodStatus::Ready);
        assert_eq!(
            of(Running, Phase::Running, ready),
            (RuntimeStatus::Running, PodStatus::Ready)
        );
        assert_eq!(
            of(Running, Phase::Starting, ready),
            (RuntimeStatus::Starting, PodStatus::Running)
        );
        let mut unreachable = entry(Running, status(Phase::Running, ready));
        unreachable.status.pod_ip = None;
        assert_eq!(derive(&unreachable).lifecycle, RuntimeStatus::Starting);
        let mut deleting = entry(Running, status(Phase::Running, ready));
        deleting.deleting = true;
        assert_eq!(derive(&deleting).lifecycle, RuntimeStatus::Stopped);
    }

    #[test]
    fn status_is_starting_when_generation_is_not_observed() {
        for phase in [Phase::Running, Phase::Failed] {
            let mut resumed = entry(DesiredState::Running, status(phase, Some(PodStatus::Ready)));
            resumed.generation = 3;
            resumed.status.observed_generation = Some(1);
            let state = derive(&resumed);
            assert_eq!(
                (state.lifecycle, state.pod),
                (RuntimeStatus::Starting, PodStatus::Running)
            );
            resumed.status.observed_generation = Some(3);
            assert_ne!(derive(&resumed).lifecycle, RuntimeStatus::Starting);
        }
    }

    #[test]
    fn failed_sandbox_is_starting_once_restart_is_requested() {
        let mut failed = entry(
            DesiredState::Running,
            status(Phase::Failed, Some(PodStatus::CrashLoopBackOff)),
        );
        let at = Timestamp::from_second(100).unwrap();
        failed.status.started_at = Some(Time(at));
        failed.wake_at = Some(at);
        assert_eq!(derive(&failed).lifecycle, RuntimeStatus::Error);
        failed.wake_at = at.checked_add(jiff::SignedDuration::from_secs(1)).ok();
        let state = derive(&failed);
        assert_eq!(
            (state.lifecycle, state.pod),
            (RuntimeStatus::Starting, PodStatus::NotFound)
        );
    }

    #[test]
    fn pod_status_is_final_only_when_start_has_failed() {
        use DesiredState::Running;
        let starting = |pod| of(Running, Phase::Starting, pod).1;
        assert_eq!(starting(None), PodStatus::NotFound);
        assert_eq!(starting(Some(PodStatus::Failed)), PodStatus::Pending);
        assert_eq!(starting(Some(PodStatus::Unknown)), PodStatus::Pending);
        assert_eq!(
            starting(Some(PodStatus::CrashLoopBackOff)),
            PodStatus::CrashLoopBackOff
        );
        assert_eq!(
            of(Running, Phase::Failed, Some(PodStatus::Pending)),
            (RuntimeStatus::Error, PodStatus::Failed)
        );
        assert_eq!(
            of(Running, Phase::Failed, Some(PodStatus::CrashLoopBackOff)),
            (RuntimeStatus::Error, PodStatus::CrashLoopBackOff)
        );
    }

    #[test]
    fn detail_is_message_or_else_reason() {
        let mut entry = entry(DesiredState::Running, status(Phase::Starting, None));
        assert_eq!(derive(&entry).detail, None);
        entry.status.reason = Some(Reason::Unschedulable);
        assert_eq!(derive(&entry).detail.as_deref(), Some("Unschedulable"));
        entry.status.message = Some("0/3 nodes".into());
        assert_eq!(derive(&entry).detail.as_deref(), Some("0/3 nodes"));
    }
}
