//! `SandboxPool`, the resource of a template for sandboxes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::int_or_string::IntOrString;
use crate::sandbox::{
    EnvVar, ExecutorMode, Lifecycle, Port, PullPolicy, Resources, SecurityContext, Workspace,
};
use crate::schema::any_object;

/// A template for sandboxes. `replicas` has no effect until warm pools are implemented.
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
    doc = "A template for sandboxes.",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.ready",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.template.image"),
    printcolumn(
        name = "Warm",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Warm\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
)]
#[cfg_attr(feature = "cel", kube(cel))]
#[serde(rename_all = "camelCase")]
pub struct SandboxPoolSpec {
    pub template: PoolTemplate,
    /// Number of dormant Pods. No effect yet; the condition `Warm` reports it.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: u32,
    /// Defaults for sandboxes of this pool.
    pub lifecycle: Option<Lifecycle>,
    /// Replacement of dormant Pods after a change of the template. No effect yet.
    pub rollout: Option<Rollout>,
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
    pub resources: Option<Resources>,
    /// Runtime class, for example `gvisor`.
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,
    pub security_context: Option<SecurityContext>,
    /// Ports that the gateway routes to, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<Port>,
    pub workspace: Option<Workspace>,
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
    /// Dormant Pods that are ready to be claimed.
    #[serde(default)]
    pub ready: u32,
    /// Dormant Pods that are being created.
    #[serde(default)]
    pub starting: u32,
    /// Sandboxes that run on a Pod of this pool.
    #[serde(default)]
    pub claimed: u32,
    /// Label selector of the Pods of this pool, for autoscalers. Set if `replicas` is set.
    #[schemars(length(max = 128))]
    pub selector: Option<String>,
    /// Hash of the template.
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// Dormant Pods of older revisions.
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
