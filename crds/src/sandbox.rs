//! `Sandbox`, the resource of one isolated session: desired state in `spec`, observed state in
//! `status`. Kubernetes types with large schemas (`podTemplate`, `valueFrom`) are untyped here and
//! validated by the controller, which keeps the CRD small.

mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::contract::persistence::PersistenceLevel;
use crate::duration::Duration;
use crate::int_or_string::IntOrString;
use crate::schema::{any_object, duration, resource_factor, resource_quantities, volume_size};

pub use status::{
    PauseReason, PersistedState, Phase, PodStatus, PoolSnapshot, Restarts, RestoredState,
    SandboxStatus,
};

/// Name of a plugin, and its options.
pub(crate) const PLUGIN: &str = "^[a-z][-_a-z0-9]*(:[a-z0-9]+(,[a-z0-9]+)*)?$";

/// An isolated, durable sandbox for one agent session.
#[skip_serializing_none]
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
    printcolumn(name = "Kept", type_ = "string", json_path = ".status.persisted.level", priority = 1),
    printcolumn(name = "Restored", type_ = "string", json_path = ".status.restored.level", priority = 1),
    printcolumn(name = "Incarnation", type_ = "integer", json_path = ".status.incarnation", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("name must be a DNS label: lowercase letters, digits and hyphens"),
)]
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
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.plugins) ? self.plugins : []) == (has(oldSelf.plugins) ? oldSelf.plugins : [])"
    ).message("plugins cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace))"
    ).message("workspace cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "!has(self.workspace) || !has(oldSelf.workspace) || (self.workspace.size == oldSelf.workspace.size && has(self.workspace.storageClassName) == has(oldSelf.workspace.storageClassName) && (!has(self.workspace.storageClassName) || self.workspace.storageClassName == oldSelf.workspace.storageClassName))"
    ).message("size and storageClassName of a workspace are immutable"),
    validation = Rule::new(
        "oldSelf.state != 'Running' || self.state != 'Running' || (has(self.persistence) ? self.persistence : '') == (has(oldSelf.persistence) ? oldSelf.persistence : '')"
    ).message("persistence cannot change while the sandbox runs: pause it first"),
    validation = Rule::new(
        "!has(self.persistence) || self.persistence == 'Workspace' || has(self.workspace) || has(self.pool)"
    ).message("persistence Root and Memory need a workspace, whose volume has the state"),
    validation = Rule::new(
        "!has(self.source) || (has(self.persistence) && self.persistence != 'Workspace' && has(self.workspace))"
    ).message("source needs a workspace, and persistence Root or Memory"),
    validation = Rule::new(
        "has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)"
    ).message("source is immutable"),
    validation = Rule::new(
        "!has(oldSelf.keyRotation) || (has(self.keyRotation) && self.keyRotation >= oldSelf.keyRotation)"
    ).message("keyRotation can only rise"),
    validation = Rule::new(
        "has(self.session) == has(oldSelf.session) && (!has(self.session) || self.session == oldSelf.session)"
    ).message("session is immutable"),
)]
pub struct SandboxSpec {
    /// Container image. Required unless `pool` is set.
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// Image pull policy. Default: that of Kubernetes for the tag of the image.
    pub image_pull_policy: Option<PullPolicy>,

    /// Program and arguments, run by the supervisor. Absent: the entrypoint of the image runs
    /// without a supervisor and takes its environment from a Secret.
    #[schemars(length(min = 1, max = 256), inner(length(max = 131_071)))]
    pub command: Option<Vec<String>>,

    /// Absolute directory in which the command starts; created if it is missing.
    #[schemars(length(max = 4095), regex(pattern = "^/"))]
    pub working_dir: Option<String>,

    /// Plain environment variables. Secrets belong in `valueFrom.secretKeyRef`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Client environment, encrypted and written by the gateway.
    #[schemars(length(max = 1_400_000))]
    pub sealed_env: Option<String>,

    /// Replacement of the Python action execution server by the native one. Default: `Native`.
    pub executor: Option<ExecutorMode>,

    /// Plugins of the native executor, besides those of its command: `NAME` or `NAME:OPTION,…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 128), regex(pattern = PLUGIN)))]
    pub plugins: Vec<String>,

    /// CPU, memory and ephemeral storage, as in a Pod. Absent limits are the defaults of the
    /// operator.
    pub resources: Option<Resources>,

    /// Factor for CPU and memory. Greater than 0; capped by the operator.
    #[serde(default)]
    #[schemars(schema_with = "resource_factor")]
    pub resource_factor: Option<f64>,

    /// Runtime class, for example `gvisor`. Absent, or missing in the cluster: the default of the
    /// operator; the status reports a missing one.
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,

    /// User and groups of the container. Absent: the user of the image.
    pub security_context: Option<SecurityContext>,

    /// Ports that the gateway routes to, by name. Absent: `runtime` 60000, `vscode` 60001,
    /// `work-1` 12000 and `work-2` 12001.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Vec<Port>,

    /// Volume that is kept across pause and resume. Absent: an emptyDir, lost on pause.
    pub workspace: Option<Workspace>,

    /// State that a pause keeps: files of the workspace, all changed files, or processes as well.
    /// Absent: that of the pool, or else `Workspace`.
    pub persistence: Option<PersistenceLevel>,

    /// State that the sandbox begins with. Absent: the files of the image.
    pub source: Option<Source>,

    /// Desired state.
    #[serde(default)]
    pub state: DesiredState,

    /// Deadlines. Absent ones are those of the pool, or else of the operator.
    pub lifecycle: Option<Lifecycle>,

    /// Name of the `SandboxPool` whose template supplies absent fields.
    #[schemars(length(min = 1, max = 52))]
    pub pool: Option<String>,

    /// Client session of the sandbox. Set by the gateway.
    pub session: Option<Session>,

    /// Number of the session key. Raise it by one for a new key from the next start of the Pod,
    /// for example by pause and resume. The previous key stays valid. Servers that accept a
    /// single key (the V0 action execution server) keep theirs.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub key_rotation: Option<u32>,

    /// PodTemplateSpec that is merged over the Pod, for what the fields above lack. It adds and
    /// overrides fields and cannot remove them.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub pod_template: Option<Value>,
}

/// State that a sandbox begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Name of a `SandboxSnapshot` of the namespace. The sandbox starts once it is ready.
    #[schemars(length(min = 1, max = 52))]
    pub snapshot: String,
}

/// Desired state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DesiredState {
    #[default]
    Running,
    /// The Pod is deleted, the workspace is kept.
    Paused,
    /// Pod and workspace are deleted; the object is kept for `deleteStoppedAfter`.
    Stopped,
}

/// Image pull policy, as in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// Server of actions in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExecutorMode {
    /// The native executor, in place of the Python action execution server.
    Native,
    /// The unchanged command.
    Command,
}

/// An environment variable, as in a container.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Value. Absent, and without `valueFrom`: empty.
    #[schemars(length(max = 131_072))]
    pub value: Option<String>,
    /// `EnvVarSource`, as in a container.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub value_from: Option<Value>,
}

/// Compute resources, as in a container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Amounts reserved on the node, for example `cpu: 250m`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "resource_quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// Upper bounds, for example `memory: 2Gi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "resource_quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// User and groups of the sandbox.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// User id. With an id other than 0 the container has no capabilities.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// Id of the primary group.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_group: Option<i64>,
    /// Id of the group of volumes. Absent: the user id.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
}

/// A port that the gateway routes to as `{name}-{runtime id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// Name in URLs. The sandbox server is `runtime`.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// TCP port on which the sandbox listens.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// Volume that is kept when the Pod is deleted.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Requested size, for example `10Gi`.
    #[schemars(schema_with = "volume_size")]
    pub size: IntOrString,
    /// Storage class of the volume. Absent: the default of the cluster.
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// Mount path. Default: `/workspace`.
    #[schemars(length(max = 1024), regex(pattern = "^/."))]
    pub mount_path: Option<String>,
}

/// Deadlines of a sandbox; `0s` means never.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Time without activity after which the sandbox is paused.
    #[schemars(schema_with = "duration")]
    pub idle_timeout: Option<Duration>,
    /// Time after a start at which the sandbox is paused, also while it is active.
    #[schemars(schema_with = "duration")]
    pub max_run_time: Option<Duration>,
    /// Maximum time from start to ready.
    #[schemars(schema_with = "duration")]
    pub start_timeout: Option<Duration>,
    /// Time in a pause after which the sandbox is stopped.
    #[schemars(schema_with = "duration")]
    pub delete_paused_after: Option<Duration>,
    /// Time after which the object of a stopped sandbox is deleted.
    #[schemars(schema_with = "duration")]
    pub delete_stopped_after: Option<Duration>,
    /// Time after a pause in which a Pod with the volume of the sandbox waits for the resume.
    #[schemars(schema_with = "duration")]
    pub warm_resume_for: Option<Duration>,
}

/// The client session that a sandbox belongs to.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Tenant: name of the API key that started the sandbox.
    #[schemars(length(min = 1, max = 63))]
    pub tenant: String,
    /// Session id of the client; any text.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// Number of earlier sandboxes of the session, which were stopped or failed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub epoch: u32,
    /// Command as the client wrote it, if it was a string; echoed in responses.
    #[schemars(length(max = 131_072))]
    pub command_line: Option<String>,
}
