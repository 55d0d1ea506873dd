//! Status of a Sandbox. Only the controller writes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::contract::persistence::{PersistenceLevel, RootMechanism};
use crate::schema::any_object;

/// Observed state of a sandbox.
#[skip_serializing_none]
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    #[serde(default)]
    pub phase: Phase,
    /// Reason of the phase, as one word.
    pub reason: Option<crate::conditions::Reason>,
    /// Explanation of the phase, for people.
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Runtime id: 16 letters that name the sandbox in URLs and in the runtime API.
    #[serde(rename = "runtimeID")]
    #[schemars(length(max = 63))]
    pub runtime_id: Option<String>,
    /// Public URL of the sandbox server.
    #[schemars(length(max = 512))]
    pub url: Option<String>,
    /// Name of the Pod, while it exists or is being created.
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// Uid of the Pod that `readyAt` refers to.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// IP address of the Pod.
    #[serde(rename = "podIP")]
    #[schemars(length(max = 45))]
    pub pod_ip: Option<String>,
    /// True if the supervisor of the Pod can prove that the address belongs to this sandbox. The
    /// gateway requires the proof before it sends requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proves_address: bool,
    /// Ports that the pool supplies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub pool_ports: Vec<super::Port>,
    /// Names of the plugins of the native executor. The gateway forwards their hosts to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 40)))]
    pub plugins: Vec<String>,
    /// Node of the Pod.
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// PVC of the workspace.
    #[schemars(length(max = 253))]
    pub workspace_claim: Option<String>,
    /// True if the volume has room for state besides the workspace, whose files are in its directory
    /// `workspace`. Levels above `Workspace` need it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_state_volume: bool,
    /// Mechanism that keeps files outside of the workspace. It stays for the life of the volume.
    pub root_mechanism: Option<RootMechanism>,
    /// Pod status in the terms of the runtime API.
    pub pod_status: Option<PodStatus>,
    /// True if the sandbox was claimed from a warm pool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// Number of the session key that the sandbox has; absent: 0.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub key_rotation: Option<u32>,
    #[serde(default, skip_serializing_if = "Restarts::is_empty")]
    pub restarts: Restarts,
    /// Time of the current start.
    pub started_at: Option<Time>,
    /// Time at which the Pod of the last successful start was scheduled; absent if it was warm.
    pub scheduled_at: Option<Time>,
    /// Time at which its container started, with all images there; absent if it was warm.
    pub container_started_at: Option<Time>,
    /// Time at which the sandbox last became ready.
    pub ready_at: Option<Time>,
    pub paused_at: Option<Time>,
    /// Cause of the pause.
    pub pause_reason: Option<PauseReason>,
    /// State that the last pause kept.
    pub persisted: Option<PersistedState>,
    /// State that the sandbox had when it last became ready after a pause or a loss of its Pod.
    pub restored: Option<RestoredState>,
    /// Number of times that the sandbox became ready with processes that began anew. It stays when a
    /// pause has kept them.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub incarnation: u32,
    /// Id of the processes that `incarnation` is for, if their supervisor reports one.
    #[schemars(length(max = 64))]
    pub processes_id: Option<String>,
    pub stopped_at: Option<Time>,
    /// Failure log: encrypted end of the log of a failed sandbox. The runtime API shows it to the
    /// owner, `sandbox-operator logs NAME` to users who may read the root key.
    #[schemars(length(max = 8192))]
    pub sealed_log: Option<String>,
    /// Revision of the pool template with which the sandbox failed. It is retried when the
    /// template changes.
    #[schemars(length(max = 63))]
    pub pool_revision: Option<String>,
    /// Revision of the pool that the sandbox was made from. It keeps this when the pool is changed or
    /// deleted.
    pub pool: Option<PoolSnapshot>,
    /// Installation of the operator that manages the sandbox, as namespace and name of its lease.
    /// Another installation leaves the sandbox alone until this field is removed.
    #[schemars(length(max = 317))]
    pub installation: Option<String>,
    /// Generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// `Ready`; `Paused`, `Failed` and `RestartNeeded` where they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature that serde requires"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// State that a pause kept.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistedState {
    pub level: PersistenceLevel,
    /// Time of the save.
    pub at: Option<Time>,
    /// Bytes on the volume, besides the workspace.
    #[schemars(range(min = 0))]
    pub size: Option<i64>,
    /// Image that the state fits, by digest.
    #[schemars(length(max = 512))]
    pub image_digest: Option<String>,
    /// Uid of the Pod that was saved.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// Reason for which less was kept than the spec asks for.
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}

/// State that a start restored.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredState {
    /// `Memory`: the processes went on. Otherwise the command was started anew.
    pub level: PersistenceLevel,
    /// Time at which the sandbox became ready.
    pub at: Option<Time>,
    /// Reason for which less was restored than the spec asks for.
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}

/// Phase of a sandbox. `Pending`: accepted, nothing is created yet. `Starting`: the Pod is being
/// created, or the command is not ready. `Running`: requests are answered. `Pausing`, `Paused`:
/// the Pod is deleted, the workspace is kept. `Stopped`: Pod and workspace are deleted. `Failed`:
/// not retried until the spec changes; see `reason` and `message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Accepted, nothing is created yet.
    #[default]
    Pending,
    /// The Pod is being created or the command is not ready.
    Starting,
    Running,
    /// The Pod is terminating, the workspace is kept.
    Pausing,
    Paused,
    Stopped,
    /// Not retried; see `reason` and `message`.
    Failed,
}

/// Cause of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PauseReason {
    /// Requested in the spec.
    Requested,
    /// There was no activity for `idleTimeout`.
    Idle,
    /// The sandbox ran for `maxRunTime`.
    MaxRunTime,
}

/// Pod status as clients of the runtime API know it (`docs/specs/runtime-api.md`, section 2.2).
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

/// Fields that a sandbox took from its pool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSnapshot {
    /// Name of the pool.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Hash of the template.
    #[schemars(length(max = 63))]
    pub revision: String,
    /// Template and lifecycle of the pool.
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

/// Restarts of the command since the last start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Restarts {
    /// Restarts of the container and replacements of the Pod.
    #[serde(default)]
    pub count: u32,
    /// Latest termination reasons, oldest first, for example `OOMKilled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 64)))]
    pub reasons: Vec<String>,
}

impl Restarts {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}
