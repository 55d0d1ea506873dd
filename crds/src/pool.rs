//! `SandboxPool`, the resource of a template for sandboxes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::contract::persistence::PersistenceLevel;
use crate::duration::Duration;
use crate::int_or_string::IntOrString;
use crate::sandbox::{
    EnvVar, ExecutorMode, Lifecycle, PLUGIN, Port, PullPolicy, Resources, SecurityContext, Source,
    Workspace,
};
use crate::schema::{any_object, duration, resource_factor};

/// A template for sandboxes, and warm Pods that sandboxes of the pool claim.
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "openhands.dev",
    version = "v1alpha1",
    kind = "SandboxPool",
    plural = "sandboxpools",
    shortname = "sbxp",
    category = "openhands",
    namespaced,
    status = "SandboxPoolStatus",
    doc = "A template for sandboxes, and warm Pods that sandboxes of the pool claim.",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.ready",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.template.image"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Claimed", type_ = "integer", json_path = ".status.claimed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
    validation = Rule::new("!has(self.spec.prestartPath) || (has(self.spec.prestart) && self.spec.prestart == 'Command')")
        .message("spec.prestartPath needs spec.prestart: Command"),
    validation = Rule::new("!has(self.spec.maxWait) || (has(self.spec.whenExhausted) && self.spec.whenExhausted == 'Wait')")
        .message("spec.maxWait needs spec.whenExhausted: Wait"),
    validation = Rule::new(
        "!has(self.spec.template.persistence) || self.spec.template.persistence == 'Workspace' || has(self.spec.template.workspace)"
    ).message("persistence Root and Memory need a workspace, whose volume has the state"),
    validation = Rule::new(
        "!has(self.spec.template.source) || (has(self.spec.template.persistence) && self.spec.template.persistence != 'Workspace')"
    ).message("spec.template.source needs persistence Root or Memory"),
    validation = Rule::new("!has(self.spec.template.source) || !has(self.spec.prestart)")
        .message("spec.prestart and spec.template.source exclude each other: the snapshot decides what runs"),
    validation = Rule::new("!has(self.spec.demand) || self.spec.demand.maxReplicas >= self.spec.replicas")
        .message("spec.demand.maxReplicas must not be below spec.replicas"),
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPoolSpec {
    pub template: PoolTemplate,
    /// Number of warm Pods: Pods without a command that sandboxes of this pool claim.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: u32,
    /// More warm Pods than `replicas` if sandboxes ask for them.
    pub demand: Option<DemandSizing>,
    /// Program that a warm Pod runs before a sandbox claims it. Default: none.
    pub prestart: Option<PrestartMode>,
    /// With prestart `Command`: path on the port `runtime` that answers 2xx once the program is warm.
    /// Default: the port accepts connections.
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub prestart_path: Option<String>,
    /// CPU and memory of warm Pods until a sandbox claims them; the rest is that of the template. A
    /// claimed Pod gets the resources of its sandbox in place (Kubernetes 1.33; earlier versions
    /// give warm Pods all resources from the begin).
    pub idle_resources: Option<Resources>,
    /// Nodes that have the images of the template before a Pod needs them.
    #[serde(default, skip_serializing_if = "ImagePulls::is_default")]
    pub image_pulls: ImagePulls,
    /// Sandboxes that may claim the warm Pods.
    #[serde(default, skip_serializing_if = "ClaimPolicy::is_default")]
    pub claimed_by: ClaimPolicy,
    /// Tenants of the runtime API whose sandboxes may claim the warm Pods, by the names of their API
    /// keys. Sandboxes of kubectl have no tenant. Default: all sandboxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub tenants: Vec<String>,
    /// Treatment of a sandbox that fits while no warm Pod is ready, before it has been ready once.
    #[serde(default, skip_serializing_if = "WhenExhausted::is_default")]
    pub when_exhausted: WhenExhausted,
    /// With `whenExhausted: Wait`: time after which the sandbox gets a Pod of its own.
    #[serde(default)]
    #[schemars(schema_with = "duration")]
    pub max_wait: Option<Duration>,
    /// Defaults for sandboxes of this pool.
    pub lifecycle: Option<Lifecycle>,
    /// Replacement of warm Pods after a change of the template. Default: 25% for both bounds.
    pub rollout: Option<Rollout>,
}

/// Growth of a pool with its demand. The pool has as many warm Pods as sandboxes asked for while a
/// claimed one was being replaced, in the last hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DemandSizing {
    /// Upper bound of the number of warm Pods.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_replicas: u32,
    /// Percentage of the requests that find a warm Pod.
    #[serde(default = "DemandSizing::default_hits")]
    #[schemars(range(min = 1, max = 100))]
    pub hits: u32,
}

impl DemandSizing {
    fn default_hits() -> u32 {
        95
    }
}

/// Program that warm Pods run. A sandbox with another command runs its own in the same Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PrestartMode {
    /// The native executor, with the shell and the plugins of the template's command.
    Executor,
    /// The agent-server, which waits for its configuration (`OH_DEFERRED_INIT`).
    AgentServer,
    /// The command of the template. Sandboxes of this command that have the variables of the
    /// template take it over.
    Command,
}

/// Sandboxes that may claim the warm Pods of a pool. In both cases the Pod of the sandbox would have
/// to be the same as a warm one, except for what arrives at the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ClaimPolicy {
    /// Those that name the pool.
    #[default]
    Named,
    /// Also those that name no pool, such as the sessions of the runtime API.
    Matching,
}

impl ClaimPolicy {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "signature that serde requires"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Pulls of the images of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ImagePulls {
    /// A node pulls them for the first Pod that needs them.
    #[default]
    OnDemand,
    /// Every node that Pods of the pool may run on pulls them ahead and keeps them.
    EveryNode,
}

impl ImagePulls {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "signature that serde requires"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Treatment of a sandbox that fits a pool without a ready warm Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum WhenExhausted {
    /// It gets a Pod of its own.
    #[default]
    ColdStart,
    /// It waits for a warm Pod; the oldest sandbox gets the next one.
    Wait,
    /// It fails. The runtime API answers 503.
    Refuse,
}

impl WhenExhausted {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "signature that serde requires"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The fields of a Sandbox that shape its Pod.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolTemplate {
    /// Container image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    pub image_pull_policy: Option<PullPolicy>,
    /// Program and arguments, run by the supervisor.
    #[schemars(length(min = 1, max = 256), inner(length(max = 131_071)))]
    pub command: Option<Vec<String>>,
    /// Absolute directory in which the command starts; created if it is missing.
    #[schemars(length(max = 4095), regex(pattern = "^/"))]
    pub working_dir: Option<String>,
    /// Plain environment variables. Those of the sandbox override them by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    pub executor: Option<ExecutorMode>,
    /// Plugins of the native executor. Those of a sandbox that has some replace them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 128), regex(pattern = PLUGIN)))]
    pub plugins: Vec<String>,
    pub resources: Option<Resources>,
    /// Factor for CPU and memory. Greater than 0; capped by the operator.
    #[serde(default)]
    #[schemars(schema_with = "resource_factor")]
    pub resource_factor: Option<f64>,
    /// Runtime class, for example `gvisor`.
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,
    pub security_context: Option<SecurityContext>,
    /// Ports that the gateway routes to, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<Port>,
    pub workspace: Option<Workspace>,
    /// State that a pause keeps: files of the workspace, all changed files, or processes as well.
    pub persistence: Option<PersistenceLevel>,
    /// State that sandboxes of the pool begin with. Warm Pods wait beside the snapshot, which they
    /// cannot read before a sandbox claims them.
    pub source: Option<Source>,
    /// PodTemplateSpec that is merged over the Pod.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub pod_template: Option<Value>,
}

/// Bounds of a rollout, each a count or a percentage of `replicas`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Maximum number or percentage of Pods above `replicas`.
    pub max_surge: Option<IntOrString>,
    /// Maximum number or percentage of Pods missing from `replicas`.
    pub max_unavailable: Option<IntOrString>,
}

/// Observed state of a pool.
#[skip_serializing_none]
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPoolStatus {
    /// Number of warm Pods that the pool is to have: `replicas`, or more with `demand`.
    #[serde(default)]
    pub desired: u32,
    /// Warm Pods that are ready to be claimed.
    #[serde(default)]
    pub ready: u32,
    /// Warm Pods that are not ready yet.
    #[serde(default)]
    pub starting: u32,
    /// Sandboxes that run on a Pod of this pool.
    #[serde(default)]
    pub claimed: u32,
    /// Label selector of the warm Pods of this pool, for autoscalers. Set if there are any.
    #[schemars(length(max = 128))]
    pub selector: Option<String>,
    /// Hash of the template.
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// Warm Pods of an earlier template.
    #[serde(default)]
    pub outdated: u32,
    /// Generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// Conditions of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
