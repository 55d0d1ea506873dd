//! Progress of a start, in the words of OpenHands' `RuntimeStatus`.

use std::fmt;

use crate::runtime_info::{PodStatus, RuntimeInfo, Status};

/// Step of a start or resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeStatus {
    /// An image is being built.
    BuildingRuntime,
    /// Accepted; queued, scheduled or pulling its image.
    StartingRuntime,
    /// The container runs; its server does not answer yet.
    RuntimeStarted,
    /// Requests are answered.
    Ready,
    /// Given up.
    Error,
    /// The gateway could not be reached, or no longer knows the sandbox.
    ErrorRuntimeDisconnected,
}

/// One report of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub status: RuntimeStatus,
    /// Id of the sandbox or of the build.
    pub id: String,
    /// Explanation, such as the progress of a pull.
    pub message: Option<String>,
}

impl Progress {
    /// Describes a sandbox that is waited for.
    pub(crate) fn of(info: &RuntimeInfo) -> Self {
        let status = match (info.status, info.pod_status) {
            (Status::Running, PodStatus::Ready) => RuntimeStatus::Ready,
            (Status::Error, _) => RuntimeStatus::Error,
            (Status::Stopped, _) => RuntimeStatus::ErrorRuntimeDisconnected,
            (_, PodStatus::Running) => RuntimeStatus::RuntimeStarted,
            _ => RuntimeStatus::StartingRuntime,
        };
        Self {
            status,
            id: info.runtime_id.clone(),
            message: info.status_detail.clone(),
        }
    }
}

impl RuntimeStatus {
    /// The word of OpenHands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuildingRuntime => "BUILDING_RUNTIME",
            Self::StartingRuntime => "STARTING_RUNTIME",
            Self::RuntimeStarted => "RUNTIME_STARTED",
            Self::Ready => "READY",
            Self::Error => "ERROR",
            Self::ErrorRuntimeDisconnected => "ERROR_RUNTIME_DISCONNECTED",
        }
    }
}

impl fmt::Display for RuntimeStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use RuntimeStatus::{
        BuildingRuntime, Error, ErrorRuntimeDisconnected, Ready, RuntimeStarted, StartingRuntime,
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_those_of_openhands() {
        for (status, word) in [
            (StartingRuntime, "STARTING_RUNTIME"),
            (BuildingRuntime, "BUILDING_RUNTIME"),
            (RuntimeStarted, "RUNTIME_STARTED"),
            (Ready, "READY"),
            (Error, "ERROR"),
            (ErrorRuntimeDisconnected, "ERROR_RUNTIME_DISCONNECTED"),
        ] {
            assert_eq!(status.to_string(), word);
        }
    }

    #[test]
    fn word_follows_from_the_states_of_sandbox_and_pod() {
        for (status, pod_status, expected) in [
            ("starting", "Not Found", StartingRuntime),
            ("starting", "Pending", StartingRuntime),
            ("starting", "CrashLoopBackOff", StartingRuntime),
            ("starting", "a later word", StartingRuntime),
            ("starting", "Running", RuntimeStarted),
            ("starting", "Ready", StartingRuntime),
            ("running", "Running", RuntimeStarted),
            ("running", "Ready", Ready),
            ("error", "Failed", Error),
            ("error", "Running", Error),
            ("stopped", "Not Found", ErrorRuntimeDisconnected),
            ("a later word", "Pending", StartingRuntime),
        ] {
            let info = json!({
                "runtime_id": "a", "session_id": "s", "url": "http://x", "status": status,
                "pod_status": pod_status, "status_detail": "why",
            });
            let step = Progress::of(&serde_json::from_value(info).unwrap());
            assert_eq!(step.status, expected, "{status}, {pod_status}");
            assert_eq!(step.message.as_deref(), Some("why"));
        }
    }
}
