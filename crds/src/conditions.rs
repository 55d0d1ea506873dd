//! Condition types and reasons, as enums: whoever adds one has to say it here.

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
    /// The operator has given up.
    Failed,
}

/// Why a Sandbox is as it is. Also the reason of its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// The Pod has been asked for and is not there yet.
    CreatingPod,
    /// No node can take the Pod.
    Unschedulable,
    /// The workspace's volume claim is gone; it begins anew, empty.
    VolumeLost,
    /// Its API key may use no more at the same time; it waits for its turn, or asks for too much.
    QuotaExceeded,
    /// The image cannot be pulled; it is tried again.
    ImagePull,
    /// The container cannot be made.
    ContainerConfig,
    /// The Pod runs and its command is being started.
    Initializing,
    /// The command runs and its port does not answer yet.
    WaitingForCommand,
    /// The sandbox answers.
    Ready,
    /// Its node has stopped reporting and the sandbox does not answer. If that goes on, Kubernetes
    /// takes the Pod away, and another one is made.
    NodeNotReady,
    /// The Pod was lost; another one is being made.
    PodReplaced,
    /// The container ended and is started again.
    Restarting,
    /// It ended too often in a row.
    CrashLoop,
    /// It did not become ready in time.
    StartTimeout,
    /// Somebody asked for it.
    Requested,
    /// Nothing happened in it for `idleTimeout`.
    Idle,
    /// It ran for `maxRunTime`.
    MaxRunTime,
    /// It was at rest for `deletePausedAfter`.
    Expired,
    /// The spec asks for something that cannot be made; see the message.
    InvalidSpec,
    /// The API server does not let the operator make it, for example because a quota is used up;
    /// it is tried again.
    Refused,
    /// The named pool does not exist.
    PoolNotFound,
    /// An object of the same name belongs to somebody else.
    NameTaken,
}

impl ConditionType {
    /// The type as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Paused => "Paused",
            Self::Failed => "Failed",
        }
    }
}

impl Reason {
    /// The reason as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreatingPod => "CreatingPod",
            Self::Unschedulable => "Unschedulable",
            Self::VolumeLost => "VolumeLost",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ImagePull => "ImagePull",
            Self::ContainerConfig => "ContainerConfig",
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
            Self::NameTaken => "NameTaken",
        }
    }
}

/// A condition, with the transition time of `old` kept if its status is the same.
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
        reason: reason.as_str().into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: unchanged
            .map_or_else(|| now.clone(), |c| c.last_transition_time.clone()),
    }
}
