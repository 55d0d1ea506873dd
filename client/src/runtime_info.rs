//! A sandbox as the runtime API shows it (`docs/specs/runtime-api.md`, section 1.3).

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// State of a sandbox and its addresses.
#[derive(Clone, derive_more::Debug, Deserialize, Serialize)]
pub struct RuntimeInfo {
    /// 16 lower-case letters.
    pub runtime_id: String,
    pub session_id: String,
    /// URL of the server in the sandbox, without a trailing slash.
    pub url: String,
    /// Key of that server. Empty in events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[debug(skip)]
    pub session_api_key: String,
    pub status: Status,
    #[serde(default)]
    pub pod_status: PodStatus,
    #[serde(default)]
    pub status_detail: Option<String>,
    /// URLs of applications in the sandbox, with their port.
    #[serde(default)]
    pub work_hosts: BTreeMap<String, u16>,
    /// True until a pause is complete: its state is being saved, or its Pod ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pausing: bool,
    /// State that the last pause kept.
    #[serde(default)]
    pub persisted: Option<PersistedState>,
    /// State that the last start restored.
    #[serde(default)]
    pub restored: Option<PersistedState>,
    /// Number of times that the processes began anew.
    #[serde(default)]
    pub incarnation: u32,
    #[serde(default)]
    pub restart_count: u32,
    #[serde(default)]
    pub restart_reasons: Vec<String>,
    #[serde(default)]
    pub container_statuses: Vec<Value>,
    /// Last event, with `reason`, `message` and `lastTimestamp`, while it is not ready.
    #[serde(default)]
    pub events: Vec<Value>,
    /// End of the output of a failed sandbox.
    #[serde(default)]
    pub pod_logs: String,
    /// A line or an array of words.
    #[serde(default)]
    pub command: Option<Value>,
    #[serde(default)]
    pub image: Option<String>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default = "one")]
    pub resource_factor: f64,
    /// CPU that it requests while it has a Pod, in thousandths of a core. This and the times of the
    /// run are absent in older gateways.
    #[serde(default)]
    pub requested_cpu_millicores: Option<u64>,
    /// Bytes.
    #[serde(default)]
    pub requested_memory_bytes: Option<u64>,
    #[serde(default)]
    pub runtime_class: Option<String>,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// Begin of the present run.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Time at which the Pod of that run was scheduled. `None` for one that was warm.
    #[serde(default)]
    pub scheduled_at: Option<Timestamp>,
    /// Time at which its container started, with all images there. `None` for one that was warm.
    #[serde(default)]
    pub container_started_at: Option<Timestamp>,
    /// Time at which the sandbox became ready in that run.
    #[serde(default)]
    pub ready_at: Option<Timestamp>,
    /// End of the last request that the answering replica of the gateway forwarded. Absent while one
    /// is open, and unless the sandbox runs.
    #[serde(default)]
    pub idle_since: Option<Timestamp>,
}

/// State that a pause kept or a start restored.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct PersistedState {
    /// `Workspace`, `Root` or `Memory`.
    pub level: String,
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// Bytes besides the workspace.
    #[serde(default)]
    pub size: Option<i64>,
    /// Reason for which it is less than was asked for.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Word of the field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Starting,
    Running,
    Paused,
    Stopped,
    Error,
    /// The gateway cannot say, or the word is of a later version.
    #[serde(other)]
    Unknown,
}

/// Word of the field `pod_status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PodStatus {
    Ready,
    Running,
    Pending,
    #[serde(rename = "Not Found")]
    NotFound,
    CrashLoopBackOff,
    Failed,
    /// Also words of later versions.
    #[default]
    #[serde(other)]
    Unknown,
}

impl RuntimeInfo {
    /// True if requests to the sandbox are answered.
    pub fn is_ready(&self) -> bool {
        self.status == Status::Running && self.pod_status == PodStatus::Ready
    }

    /// Returns the explanation of the state, or the words of the state.
    pub fn explanation(&self) -> String {
        match &self.status_detail {
            Some(detail) if !detail.is_empty() => detail.clone(),
            _ => format!("{} ({:?})", self.status, self.pod_status),
        }
    }

    /// Removes the session key, for output that others may see.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.session_api_key.clear();
        self
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Error => "error",
            Self::Unknown => "unknown",
        })
    }
}

fn one() -> f64 {
    1.0
}
