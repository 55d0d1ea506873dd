//! What is true of a sandbox: written by the controller alone, a few hundred bytes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is true of a sandbox.
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    #[serde(default)]
    pub phase: Phase,
    /// Why, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<crate::conditions::Reason>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// 16 letters that name the sandbox in URLs and in the runtime API, the same for life.
    #[serde(default, rename = "runtimeID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub runtime_id: Option<String>,
    /// Public URL of the sandbox server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub url: Option<String>,
    /// The Pod, while there is one or one is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// Address of the Pod.
    #[serde(default, rename = "podIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub pod_ip: Option<String>,
    /// Node that the Pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// Volume claim of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub workspace_claim: Option<String>,
    /// State of the Pod in the words of the runtime API (spec 2.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_status: Option<PodStatus>,
    /// Whether it was claimed from a pool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// Number of the session key that the sandbox knows; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub key_rotation: Option<u32>,
    #[serde(default, skip_serializing_if = "Restarts::is_empty")]
    pub restarts: Restarts,
    /// When the current start began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it last became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Time>,
    /// Who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<PauseReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Time>,
    /// End of the log of a failed sandbox, encrypted: programs print secrets. The runtime API shows
    /// it to the owner, `sandbox-operator logs NAME` to who may read the root key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub sealed_log: Option<String>,
    /// Of a failed sandbox: the template of its pool with which it failed. Another template is tried
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pool_revision: Option<String>,
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, and `Paused` or `Failed` where that is so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where a sandbox is in its life. `Pending`: nothing is made yet, or what it needs is missing.
/// `Starting`: its Pod is being made, or its command is not ready. `Running`: requests are answered.
/// `Pausing`, `Paused`: compute is released, the workspace stays. `Stopped`: everything is released.
/// `Failed`: given up until the spec is changed; `reason` and `message` say why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Accepted, nothing made yet.
    #[default]
    Pending,
    /// The Pod is being made or its command is not ready yet.
    Starting,
    Running,
    /// The Pod is going away, the workspace stays.
    Pausing,
    Paused,
    Stopped,
    /// Given up; see `reason` and `message`.
    Failed,
}

/// Who paused a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PauseReason {
    /// The spec asks for it.
    Requested,
    /// Nothing happened in it for `idleTimeout`.
    Idle,
    /// It ran for `maxRunTime`.
    MaxRunTime,
}

/// State of the Pod as clients of the runtime API know it (spec 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodStatus {
    Ready,
    Running,
    Pending,
    #[serde(rename = "Not Found")]
    NotFound,
    CrashLoopBackOff,
    Failed,
    Unknown,
}

/// How often the command had to be started again since the last start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Restarts {
    /// Restarts of the container and replacements of the Pod.
    #[serde(default)]
    pub count: u32,
    /// The latest reasons, oldest first, for example `OOMKilled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 64)))]
    pub reasons: Vec<String>,
}

impl Restarts {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

impl PodStatus {
    /// The exact spelling that clients match on (runtime API spec 2.2).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Running => "Running",
            Self::Pending => "Pending",
            Self::NotFound => "Not Found",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}
