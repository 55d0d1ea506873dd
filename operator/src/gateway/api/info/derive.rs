//! `status` and `pod_status` of a sandbox (runtime API spec 2), from nothing but its entry.
//!
//! What the user wants comes first: after `/pause` every read says `paused` at once, whatever the
//! Pod still does. And `running` is said only of what answers requests.

use crds::sandbox::{DesiredState, Phase, PodStatus};
use schemars::JsonSchema;
use serde::Serialize;

use crate::index::Entry;

/// The field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    Starting,
    Running,
    Paused,
    Stopped,
    Error,
}

/// What clients decide by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub lifecycle: Lifecycle,
    pub pod: PodStatus,
    /// Why, for people.
    pub detail: Option<String>,
}

/// Derives the state of a sandbox.
pub fn derive(entry: &Entry) -> State {
    let lifecycle = lifecycle(entry);
    State {
        lifecycle,
        pod: pod_status(lifecycle, entry.status.pod_status),
        detail: detail(lifecycle, entry),
    }
}

fn lifecycle(entry: &Entry) -> Lifecycle {
    let phase = entry.status.phase;
    match entry.wanted() {
        _ if entry.deleting || phase == Phase::Stopped => Lifecycle::Stopped,
        DesiredState::Stopped => Lifecycle::Stopped,
        DesiredState::Paused => Lifecycle::Paused,
        // What the status says of an earlier spec may be over: the controller has yet to look.
        DesiredState::Running if !entry.is_observed() => Lifecycle::Starting,
        DesiredState::Running if phase == Phase::Failed => Lifecycle::Error,
        DesiredState::Running if entry.is_ready() => Lifecycle::Running,
        DesiredState::Running => Lifecycle::Starting,
    }
}

fn pod_status(lifecycle: Lifecycle, told: Option<PodStatus>) -> PodStatus {
    match lifecycle {
        Lifecycle::Running => PodStatus::Ready,
        Lifecycle::Paused | Lifecycle::Stopped => PodStatus::NotFound,
        Lifecycle::Error => match told {
            Some(fatal @ (PodStatus::CrashLoopBackOff | PodStatus::Unknown)) => fatal,
            _ => PodStatus::Failed,
        },
        Lifecycle::Starting => match told.unwrap_or(PodStatus::NotFound) {
            // The Pod may be; the way to it is not.
            PodStatus::Ready => PodStatus::Running,
            // Fatal words would end the client's wait for a Pod that is being replaced.
            PodStatus::Failed | PodStatus::Unknown => PodStatus::Pending,
            other => other,
        },
    }
}

fn detail(lifecycle: Lifecycle, entry: &Entry) -> Option<String> {
    if !matches!(lifecycle, Lifecycle::Starting | Lifecycle::Error) {
        return None;
    }
    let status = &entry.status;
    let reason = || status.reason.map(|reason| reason.as_str().to_owned());
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
    use crate::index::Key;

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

    fn of(state: DesiredState, phase: Phase, pod: Option<PodStatus>) -> (Lifecycle, PodStatus) {
        let state = derive(&entry(state, status(phase, pod)));
        (state.lifecycle, state.pod)
    }

    #[test]
    fn what_the_user_wants_comes_first() {
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
                (Lifecycle::Paused, PodStatus::NotFound)
            );
            assert_eq!(
                of(Stopped, phase, ready),
                (Lifecycle::Stopped, PodStatus::NotFound)
            );
        }
    }

    #[test]
    fn running_is_said_only_of_what_answers() {
        use DesiredState::Running;
        let ready = Some(PodStatus::Ready);
        assert_eq!(
            of(Running, Phase::Running, ready),
            (Lifecycle::Running, PodStatus::Ready)
        );
        assert_eq!(
            of(Running, Phase::Starting, ready),
            (Lifecycle::Starting, PodStatus::Running)
        );
        let mut unreachable = entry(Running, status(Phase::Running, ready));
        unreachable.status.pod_ip = None;
        assert_eq!(derive(&unreachable).lifecycle, Lifecycle::Starting);
        let mut deleting = entry(Running, status(Phase::Running, ready));
        deleting.deleting = true;
        assert_eq!(derive(&deleting).lifecycle, Lifecycle::Stopped);
    }

    #[test]
    fn a_status_of_before_a_pause_says_nothing_of_after_the_resume() {
        for phase in [Phase::Running, Phase::Failed] {
            let mut resumed = entry(DesiredState::Running, status(phase, Some(PodStatus::Ready)));
            resumed.generation = 3;
            resumed.status.observed_generation = Some(1);
            let state = derive(&resumed);
            assert_eq!(
                (state.lifecycle, state.pod),
                (Lifecycle::Starting, PodStatus::Running)
            );
            resumed.status.observed_generation = Some(3);
            assert_ne!(derive(&resumed).lifecycle, Lifecycle::Starting);
        }
    }

    #[test]
    fn a_start_is_fatal_only_when_it_is_over() {
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
            (Lifecycle::Error, PodStatus::Failed)
        );
        assert_eq!(
            of(Running, Phase::Failed, Some(PodStatus::CrashLoopBackOff)),
            (Lifecycle::Error, PodStatus::CrashLoopBackOff)
        );
    }

    #[test]
    fn the_detail_is_the_message_or_else_the_reason() {
        let mut entry = entry(DesiredState::Running, status(Phase::Starting, None));
        assert_eq!(derive(&entry).detail, None);
        entry.status.reason = Some(Reason::Unschedulable);
        assert_eq!(derive(&entry).detail.as_deref(), Some("Unschedulable"));
        entry.status.message = Some("0/3 nodes".into());
        assert_eq!(derive(&entry).detail.as_deref(), Some("0/3 nodes"));
    }
}
