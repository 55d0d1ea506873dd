//! `SandboxSnapshot`, the state of a sandbox at one moment, under a name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::contract::persistence::PersistenceLevel;
use crate::duration::Duration;
use crate::schema::{any_object, duration};

/// The state of a running sandbox at one moment, from which other sandboxes start.
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "openhands.dev",
    version = "v1alpha1",
    kind = "SandboxSnapshot",
    plural = "sandboxsnapshots",
    shortname = "sbxsnap",
    category = "openhands",
    namespaced,
    status = "SandboxSnapshotStatus",
    doc = "The state of a running sandbox at one moment, from which other sandboxes start.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Sandbox", type_ = "string", json_path = ".spec.sandbox"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Level", type_ = "string", json_path = ".status.level"),
    printcolumn(name = "Size", type_ = "integer", format = "int64", json_path = ".status.size"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 52").message("name must have at most 52 characters"),
    validation = Rule::new("self.spec == oldSelf.spec").message("spec is immutable"),
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSnapshotSpec {
    /// Name of the Sandbox, which must run at level `Root` or `Memory`.
    #[schemars(length(min = 1, max = 52))]
    pub sandbox: String,
    /// Highest level of the snapshot. Absent: that of the sandbox.
    pub level: Option<PersistenceLevel>,
    /// Time after the creation at which the snapshot is deleted. Absent or `0s`: never.
    #[serde(default)]
    #[schemars(schema_with = "duration")]
    pub delete_after: Option<Duration>,
    /// Tenant of the sandbox. Set by the gateway.
    #[schemars(length(min = 1, max = 63))]
    pub tenant: Option<String>,
}

/// Progress of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotPhase {
    /// Accepted; the sandbox has not been asked yet.
    #[default]
    Pending,
    /// The state is being copied.
    Saving,
    /// Sandboxes can start from it.
    Ready,
    /// There is no copy; the message says why.
    Failed,
}

/// Observed state of a snapshot.
#[skip_serializing_none]
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSnapshotStatus {
    #[serde(default)]
    pub phase: SnapshotPhase,
    /// Explanation of the phase, for people: why there is no copy, or why it has less than was asked
    /// for.
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// State that the snapshot has.
    pub level: Option<PersistenceLevel>,
    /// Bytes on the volume.
    #[schemars(range(min = 0))]
    pub size: Option<i64>,
    /// Time at which the copy was complete.
    pub saved_at: Option<Time>,
    /// Image that the sandbox ran, by digest.
    #[schemars(length(max = 512))]
    pub image_digest: Option<String>,
    /// Uid of the Sandbox.
    #[serde(rename = "sandboxUID")]
    #[schemars(length(max = 63))]
    pub sandbox_uid: Option<String>,
    /// Uid of the Pod that was copied.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// PVC with the copy: that of the sandbox, which stays until its snapshots are deleted.
    #[schemars(length(max = 253))]
    pub claim: Option<String>,
    /// Tenant of the sandbox.
    #[schemars(length(max = 63))]
    pub tenant: Option<String>,
    /// Spec of the sandbox without its session, secrets and state: what sandboxes of the runtime API
    /// that start from the snapshot have.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub template: Option<Value>,
}

impl SandboxSnapshot {
    pub fn phase(&self) -> SnapshotPhase {
        self.status
            .as_ref()
            .map_or_else(Default::default, |status| status.phase)
    }

    /// Tenant whose sandboxes may start from it; `None` for sandboxes without one.
    pub fn tenant(&self) -> Option<&str> {
        let of_status = self.status.as_ref();
        let of_status = of_status.and_then(|status| status.tenant.as_deref());
        of_status.or(self.spec.tenant.as_deref())
    }
}
