//! Derives `status` and `pod_status` from an index entry (`docs/specs/runtime-api.md`, section 2).
//!
//! The desired state comes first: after `/pause` every read answers `paused`, although the Pod is
//! still terminating. `running` requires that requests are answered.

use crds::sandbox::{DesiredState, Phase, PodStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use shared::index::Entry;

/// Field `status` of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Returns whether requests to the sandbox are answered.
pub fn is_running(entry: &Entry) -> bool {
    lifecycle(entry) == RuntimeStatus::Running
}

/// Returns whether the sandbox is paused for clients, but the pause is not complete: its state is being
/// saved, or its Pod ends.
pub fn is_pausing(entry: &Entry) -> bool {
    let is_complete = entry.status.phase == Phase::Paused && entry.is_observed();
    lifecycle(entry) == RuntimeStatus::Paused && !is_complete
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
    let status = &entry.status;
    match lifecycle {
        // The status still tells of the pause.
        RuntimeStatus::Starting if matches!(status.phase, Phase::Pausing | Phase::Paused) => {
            return None;
        }
        RuntimeStatus::Starting | RuntimeStatus::Error => {}
        RuntimeStatus::Running => {
            let restored = status.restored.as_ref()?;
            let (level, reason) = (restored.level, restored.reason.as_ref()?);
            return Some(format!("restored: {level} ({reason})"));
        }
        RuntimeStatus::Paused => {
            let persisted = status.persisted.as_ref()?;
            let (level, reason) = (persisted.level, persisted.reason.as_ref()?);
            return Some(format!("kept: {level} ({reason})"));
        }
        RuntimeStatus::Stopped => return None,
    }
    let reason = || status.reason.map(|reason| reason.to_string());
    status.message.clone().or_else(reason)
}

#[cfg(test)]
mod tests {
    use crds::conditions::Reason;
    use jiff::{SignedDuration, Timestamp};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;
    use shared::keys::Keys;

    use super::*;

    /// A sandbox that was ready once, with this desired state, phase and Pod status.
    fn entry(row: &str) -> Entry {
        let words: Vec<_> = row.split(' ').collect();
        let sandbox = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1",
                "generation": 1},
            "spec": {"state": words[0]},
            "status": {"phase": words[1], "podStatus": words.get(2), "podIP": "10.0.0.1",
                "readyAt": "1970-01-01T00:00:00Z"},
        });
        let keys = Keys::derive(&[1; 32]).unwrap();
        Entry::read(&serde_json::from_value(sandbox).unwrap(), &keys).unwrap()
    }

    /// Status and Pod status.
    fn derived(entry: &Entry) -> String {
        let state = derive(entry);
        format!("{:?}, {:?}", state.lifecycle, state.pod)
    }

    #[test]
    fn status_follows_desired_state_phase_and_pod() {
        for (row, expected) in [
            ("Paused Pending Ready", "Paused, NotFound"),
            ("Paused Running Ready", "Paused, NotFound"),
            ("Paused Pausing Ready", "Paused, NotFound"),
            ("Paused Failed Ready", "Paused, NotFound"),
            ("Stopped Pending Ready", "Stopped, NotFound"),
            ("Stopped Running Ready", "Stopped, NotFound"),
            ("Stopped Pausing Ready", "Stopped, NotFound"),
            ("Stopped Failed Ready", "Stopped, NotFound"),
            ("Running Running Ready", "Running, Ready"),
            ("Running Starting Ready", "Starting, Running"),
            ("Running Starting", "Starting, NotFound"),
            // The Pod status is final only when the start has failed.
            ("Running Starting Failed", "Starting, Pending"),
            ("Running Starting Unknown", "Starting, Pending"),
            (
                "Running Starting CrashLoopBackOff",
                "Starting, CrashLoopBackOff",
            ),
            ("Running Failed Pending", "Error, Failed"),
            ("Running Failed CrashLoopBackOff", "Error, CrashLoopBackOff"),
        ] {
            assert_eq!(derived(&entry(row)), expected, "{row}");
        }
        let mut unreachable = entry("Running Running Ready");
        unreachable.status.pod_ip = None;
        assert_eq!(derive(&unreachable).lifecycle, RuntimeStatus::Starting);
        let mut deleting = entry("Running Running Ready");
        deleting.deleting = true;
        assert_eq!(derive(&deleting).lifecycle, RuntimeStatus::Stopped);
    }

    #[test]
    fn pause_is_complete_once_the_controller_says_so() {
        for (row, expected) in [
            ("Paused Running Ready", true),
            ("Paused Pausing Ready", true),
            ("Paused Failed Ready", true),
            ("Paused Paused", false),
            ("Running Running Ready", false),
            ("Stopped Pausing Ready", false),
        ] {
            assert_eq!(is_pausing(&entry(row)), expected, "{row}");
        }
        let mut again = entry("Paused Paused");
        again.generation = 3;
        again.status.observed_generation = Some(1);
        assert!(is_pausing(&again));
    }

    #[test]
    fn status_is_starting_when_generation_is_not_observed() {
        for row in ["Running Running Ready", "Running Failed Ready"] {
            let mut resumed = entry(row);
            resumed.generation = 3;
            resumed.status.observed_generation = Some(1);
            assert_eq!(derived(&resumed), "Starting, Running");
            resumed.status.observed_generation = Some(3);
            assert_ne!(derive(&resumed).lifecycle, RuntimeStatus::Starting);
        }
    }

    #[test]
    fn failed_sandbox_is_starting_once_restart_is_requested() {
        let mut failed = entry("Running Failed CrashLoopBackOff");
        let at = Timestamp::from_second(100).unwrap();
        failed.status.started_at = Some(Time(at));
        failed.wake_at = Some(at);
        assert_eq!(derive(&failed).lifecycle, RuntimeStatus::Error);
        failed.wake_at = Some(at + SignedDuration::from_secs(1));
        assert_eq!(derived(&failed), "Starting, NotFound");
    }

    #[test]
    fn detail_is_message_or_else_reason() {
        let mut entry = entry("Running Starting");
        assert_eq!(derive(&entry).detail, None);
        entry.status.reason = Some(Reason::Unschedulable);
        assert_eq!(derive(&entry).detail.as_deref(), Some("Unschedulable"));
        entry.status.message = Some("0/3 nodes".into());
        assert_eq!(derive(&entry).detail.as_deref(), Some("0/3 nodes"));
    }

    #[test]
    fn reason_of_a_pause_is_none_of_the_start_that_follows() {
        for phase in ["Pausing", "Paused"] {
            let mut entry = entry(&format!("Running {phase}"));
            entry.status.reason = Some(Reason::Requested);
            assert_eq!(derive(&entry).lifecycle, RuntimeStatus::Starting);
            assert_eq!(derive(&entry).detail, None);
        }
    }
}
