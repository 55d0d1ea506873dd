//! `SandboxPool`: a template for sandboxes, and how many of them wait ready to be claimed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::amount::IntOrString;
use crate::sandbox::{
    EnvVar, ExecutorMode, Lifecycle, Port, PullPolicy, Resources, SecurityContext, Workspace,
};
use crate::schema::any_object;

/// A pool of dormant Pods made from one template. With `replicas: 0` it is a plain template.
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
    doc = "A template for sandboxes, and how many of them wait ready to be claimed.",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.ready"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Claimed", type_ = "integer", json_path = ".status.claimed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.template.image", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
)]
#[cfg_attr(feature = "cel", kube(cel))]
#[serde(rename_all = "camelCase")]
pub struct SandboxPoolSpec {
    pub template: PoolTemplate,
    /// How many dormant Pods to keep ready. Without effect yet: the condition `Warm` says so.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: u32,
    /// Defaults for sandboxes of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// How a changed template reaches dormant members. Without effect yet, as `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// The fields of a Sandbox that shape its Pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolTemplate {
    /// Container image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Program and arguments, run by the supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 131_071)))]
    pub command: Option<Vec<String>>,
    /// Absolute directory in which the command starts; made if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4095), regex(pattern = "^/"))]
    pub working_dir: Option<String>,
    /// Plain environment variables. A sandbox's own of the same name win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Isolation class, for example `gvisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Ports that the gateway routes to, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<Port>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Strategic-merge patch (PodTemplateSpec) over the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub pod_template: Option<Value>,
}

/// Bounds of a rollout, each a count or a percentage of `replicas`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How many members there may be beyond those asked for: a number, or a percentage of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// How many of those asked for may be missing: a number, or a percentage of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// What is true of a pool.
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPoolStatus {
    /// Dormant members that can be claimed at once.
    #[serde(default)]
    pub ready: u32,
    /// Members that are being made.
    #[serde(default)]
    pub starting: u32,
    /// Sandboxes that live on a member of this pool.
    #[serde(default)]
    pub claimed: u32,
    /// Hash of the template that new members are made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// Members of older revisions.
    #[serde(default)]
    pub outdated: u32,
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of the pool, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
