//! Pod type with only the fields that the operator reads. It takes a tenth of the memory and two
//! thirds of the parsing time of `Pod`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Serialize};

/// Fields of a Pod that the operator reads.
#[derive(Resource, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[resource(inherit = "Pod")]
pub struct SlimPod {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: SlimSpec,
    #[serde(default)]
    pub status: SlimStatus,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimSpec {
    #[serde(default)]
    pub node_name: Option<String>,
    #[serde(default)]
    pub containers: Vec<SlimContainer>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimContainer {
    pub name: String,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub termination_message_policy: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimStatus {
    #[serde(default)]
    pub phase: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default, rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(default)]
    pub conditions: Vec<SlimCondition>,
    #[serde(default)]
    pub init_container_statuses: Vec<SlimContainerStatus>,
    #[serde(default)]
    pub container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlimCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimContainerStatus {
    pub name: String,
    #[serde(default)]
    pub restart_count: u32,
    #[serde(default)]
    pub state: SlimState,
    #[serde(default)]
    pub last_state: SlimState,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlimState {
    #[serde(default)]
    pub waiting: Option<SlimWaiting>,
    #[serde(default)]
    pub running: Option<SlimRunning>,
    #[serde(default)]
    pub terminated: Option<SlimTerminated>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlimWaiting {
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimRunning {
    #[serde(default)]
    pub started_at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlimTerminated {
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub exit_code: i32,
    #[serde(default)]
    pub message: Option<String>,
}

impl SlimPod {
    /// Value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        let annotations: Option<&BTreeMap<String, String>> = self.metadata.annotations.as_ref();
        annotations.and_then(|a| a.get(name)).map(String::as_str)
    }

    /// Condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&SlimCondition> {
        self.status.conditions.iter().find(|c| c.type_ == kind)
    }
}
