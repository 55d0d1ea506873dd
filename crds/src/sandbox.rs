//! `Sandbox`: one isolated session. Its spec says what the user wants, its status what is true.
//!
//! Kept small on purpose: every byte of an object is paid for at each write of it. Kubernetes types
//! with large schemas (`podTemplate`, `valueFrom`) are untyped here and checked by the controller.

mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::amount::IntOrString;
use crate::duration::Duration;
use crate::schema::{amounts, any_object, duration, factor, size};

pub use status::{PauseReason, Phase, PodStatus, Restarts, SandboxStatus};

/// An isolated, durable sandbox for one agent session.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "openhands.dev",
    version = "v1alpha1",
    kind = "Sandbox",
    plural = "sandboxes",
    shortname = "sbx",
    category = "openhands",
    namespaced,
    status = "SandboxStatus",
    doc = "An isolated, durable sandbox for one agent session.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("name must be a DNS label: lowercase letters, digits and hyphens"),
)]
#[cfg_attr(feature = "cel", kube(cel))]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.image) || has(self.pool)").message("image is required unless pool is set"),
    validation = Rule::new("oldSelf.state != 'Stopped' || self.state == 'Stopped'")
        .message("a stopped sandbox cannot be started again: create a new one"),
    validation = Rule::new(
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.image) == has(oldSelf.image) && (!has(self.image) || self.image == oldSelf.image))"
    ).message("image cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.command) == has(oldSelf.command) && (!has(self.command) || self.command == oldSelf.command))"
    ).message("command cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace))"
    ).message("workspace cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "!has(self.workspace) || !has(oldSelf.workspace) || (self.workspace.size == oldSelf.workspace.size && has(self.workspace.storageClassName) == has(oldSelf.workspace.storageClassName) && (!has(self.workspace.storageClassName) || self.workspace.storageClassName == oldSelf.workspace.storageClassName))"
    ).message("size and storageClassName of a workspace are immutable"),
    validation = Rule::new(
        "!has(oldSelf.keyRotation) || (has(self.keyRotation) && self.keyRotation >= oldSelf.keyRotation)"
    ).message("keyRotation can only rise"),
    validation = Rule::new(
        "has(self.session) == has(oldSelf.session) && (!has(self.session) || self.session == oldSelf.session)"
    ).message("session is immutable"),
)]
pub struct SandboxSpec {
    /// Container image. Required unless `pool` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// When the image is pulled. Default: as Kubernetes does for the image's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,

    /// Program and arguments, run by the supervisor. Absent: the image's own entrypoint runs
    /// unsupervised and takes its environment from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 131_071)))]
    pub command: Option<Vec<String>>,

    /// Absolute directory in which the command starts; made if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4095), regex(pattern = "^/"))]
    pub working_dir: Option<String>,

    /// Plain environment variables. Secrets belong in `valueFrom.secretKeyRef`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Client environment, encrypted and written by the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_400_000))]
    pub sealed_env: Option<String>,

    /// Whether a command that is the Python action execution server is replaced by the native one.
    /// Default: `Native`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorMode>,

    /// CPU, memory and ephemeral storage, as in a Pod. Limits are always set; absent ones come from
    /// the operator's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Multiplies CPU and memory. Greater than 0; capped by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "factor")]
    pub resource_factor: Option<f64>,

    /// Isolation class, for example `gvisor`. Absent, or missing in the cluster: the operator's
    /// default; the status says so then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,

    /// User and groups that the container starts as. Absent: the image's own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,

    /// Ports that the gateway routes to, by name. Absent: `runtime` 60000, `vscode` 60001,
    /// `work-1` 12000 and `work-2` 12001.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Vec<Port>,

    /// Volume that survives pause and resume. Absent: an emptyDir, lost on pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,

    /// What the user wants.
    #[serde(default)]
    pub state: DesiredState,

    /// Deadlines. Absent ones come from the pool and from the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,

    /// Name of the `SandboxPool` whose template supplies what is absent here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 52))]
    pub pool: Option<String>,

    /// Whose session this is. Set by the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,

    /// Number of the session key. Raised by one, it gives the sandbox a new key when its Pod is next
    /// started, as by a resume; until then nothing changes. The key before it stays valid beside
    /// it. Without effect on servers that know a single key: the V0 action execution server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub key_rotation: Option<u32>,

    /// Strategic-merge patch (PodTemplateSpec) over the Pod, for what the fields above lack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub pod_template: Option<Value>,
}

/// What the user wants a sandbox to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DesiredState {
    #[default]
    Running,
    /// Compute released, workspace kept.
    Paused,
    /// Everything released; the object stays for a while as a tombstone.
    Stopped,
}

/// When an image is pulled, as in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// Who serves actions in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExecutorMode {
    /// The native executor, in place of the Python action execution server.
    Native,
    /// The command as it stands.
    Command,
}

/// An environment variable, as in a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Its value. Absent, and without `valueFrom`: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub value: Option<String>,
    /// `EnvVarSource`, as in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub value_from: Option<Value>,
}

/// Compute resources, as in a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What is reserved on the node, for example `cpu: 250m`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "amounts")]
    pub requests: BTreeMap<String, IntOrString>,
    /// The most that is used, for example `memory: 2Gi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "amounts")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// User and groups of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// Number of the user. Not 0: the sandbox has no privileges at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// Number of the primary group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_group: Option<i64>,
    /// Number of the group that volumes belong to. Absent: the number of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
}

/// A port that the gateway routes to as `{name}-{runtime id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// Name in URLs. The server of the sandbox is `runtime`.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Number of the port that the sandbox listens on.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// The volume that outlives the Pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Requested size, for example `10Gi`.
    #[schemars(schema_with = "size")]
    pub size: IntOrString,
    /// Storage class of the volume. Absent: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// Where it is mounted. Default: `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/."))]
    pub mount_path: Option<String>,
}

/// Deadlines of a sandbox; a duration of `0s` means never.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Paused after this long without activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub idle_timeout: Option<Duration>,
    /// Paused this long after its start, busy or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub max_run_time: Option<Duration>,
    /// Longest time to become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub start_timeout: Option<Duration>,
    /// Stopped after being paused for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub delete_paused_after: Option<Duration>,
    /// How long the tombstone of a stopped sandbox stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub delete_stopped_after: Option<Duration>,
}

/// The client session that a sandbox belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Name of the API key that started it.
    #[schemars(length(min = 1, max = 63))]
    pub tenant: String,
    /// The client's own id, any text.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// Rises each time the session is started anew after a stop or a failure.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub epoch: u32,
    /// How the client wrote the command: echoed in answers as a string if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub command_line: Option<String>,
}
