//! Condition types and reasons of Sandboxes as closed sets, so that controller, gateway and CRD
//! schema share one list.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Types of the conditions of a Sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionType {
    /// The sandbox answers requests through the gateway.
    Ready,
    /// Compute is released, the workspace is kept.
    Paused,
    /// The sandbox has failed and is not retried.
    Failed,
    /// The spec has changed since the Pod was created.
    RestartNeeded,
}

/// Reason of the phase of a Sandbox and of its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// The Pod is being created.
    CreatingPod,
    /// No node can take the Pod.
    Unschedulable,
    /// The workspace PVC was deleted; a new, empty one is created.
    VolumeLost,
    /// The quota of the API key is exhausted, or the sandbox requests more than it allows.
    QuotaExceeded,
    /// The image cannot be pulled; the pull is retried.
    ImagePullBackOff,
    /// The name of the image is invalid.
    InvalidImageName,
    /// The container cannot be created.
    CreateContainerConfigError,
    /// The Pod runs and its command is being started.
    Initializing,
    /// The command runs and its readiness probe has not passed.
    WaitingForCommand,
    /// The readiness probe has passed.
    Ready,
    /// The node is not reporting and the sandbox does not respond. The Pod is replaced after
    /// Kubernetes evicts it.
    NodeNotReady,
    /// The Pod was lost; a replacement is being created.
    PodReplaced,
    /// The command terminated and is being restarted.
    Restarting,
    /// The command terminated too often.
    CrashLoop,
    /// The sandbox was not ready within `startTimeout`.
    StartTimeout,
    /// Requested in the spec.
    Requested,
    /// There was no activity for `idleTimeout`.
    Idle,
    /// The sandbox ran for `maxRunTime`.
    MaxRunTime,
    /// The sandbox was paused for `deletePausedAfter`.
    Expired,
    /// The spec cannot be carried out; see the message.
    InvalidSpec,
    /// The API server rejects an owned object, for example because of a `ResourceQuota`; the
    /// request is retried.
    Refused,
    /// The named pool does not exist.
    PoolNotFound,
    /// No warm Pod of the pool is ready, and the pool makes sandboxes wait.
    WaitingForWarmPod,
    /// No warm Pod of the pool is ready, and the pool refuses sandboxes then.
    PoolExhausted,
    /// The snapshot of `spec.source` does not exist.
    SnapshotNotFound,
    /// The snapshot of `spec.source` is being taken.
    WaitingForSnapshot,
    /// The snapshot of `spec.source` has failed, or belongs to another tenant.
    SnapshotUnusable,
    /// An object of the same name has another owner.
    NameTaken,
    /// The spec has changed since the Pod was created. Reason of the condition `RestartNeeded`.
    SpecChanged,
}

impl ConditionType {
    /// Type of the condition on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Paused => "Paused",
            Self::Failed => "Failed",
            Self::RestartNeeded => "RestartNeeded",
        }
    }
}

impl Reason {
    /// Reason on the wire, which is also its label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreatingPod => "CreatingPod",
            Self::Unschedulable => "Unschedulable",
            Self::VolumeLost => "VolumeLost",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::InvalidImageName => "InvalidImageName",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::Initializing => "Initializing",
            Self::WaitingForCommand => "WaitingForCommand",
            Self::Ready => "Ready",
            Self::NodeNotReady => "NodeNotReady",
            Self::PodReplaced => "PodReplaced",
            Self::Restarting => "Restarting",
            Self::CrashLoop => "CrashLoop",
            Self::StartTimeout => "StartTimeout",
            Self::Requested => "Requested",
            Self::Idle => "Idle",
            Self::MaxRunTime => "MaxRunTime",
            Self::Expired => "Expired",
            Self::InvalidSpec => "InvalidSpec",
            Self::Refused => "Refused",
            Self::PoolNotFound => "PoolNotFound",
            Self::WaitingForWarmPod => "WaitingForWarmPod",
            Self::PoolExhausted => "PoolExhausted",
            Self::SnapshotNotFound => "SnapshotNotFound",
            Self::WaitingForSnapshot => "WaitingForSnapshot",
            Self::SnapshotUnusable => "SnapshotUnusable",
            Self::NameTaken => "NameTaken",
            Self::SpecChanged => "SpecChanged",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Builds a condition. It keeps the transition time of `old` if the status is the same.
pub fn condition(
    old: &[Condition],
    kind: ConditionType,
    status: bool,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> Condition {
    let status = if status { "True" } else { "False" };
    let unchanged = old
        .iter()
        .find(|c| c.type_ == kind.as_str() && c.status == status);
    Condition {
        type_: kind.as_str().into(),
        status: status.into(),
        reason: reason.to_string(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: unchanged
            .map_or_else(|| now.clone(), |c| c.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_has_the_same_text_in_objects_and_labels() {
        let schema = serde_json::to_value(schemars::schema_for!(Reason)).unwrap();
        let names = schema["oneOf"].as_array().unwrap();
        assert!(names.len() > 25, "{schema}");
        for name in names {
            let name = &name["const"];
            let reason: Reason = serde_json::from_value(name.clone()).unwrap();
            assert_eq!(reason.as_str(), name);
        }
    }
}
