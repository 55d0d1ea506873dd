//! `RuntimeInfo`, the object that most endpoints return (`docs/specs/runtime-api.md`, section 1.3).
//!
//! It is always complete: different clients read different fields of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crds::conditions::{ConditionType, Reason};
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{self, PodStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Api;
use super::resources::{factor, has_pod, requests};
use crate::runtime_status::{RuntimeStatus, derive, is_pausing, is_running};
use shared::index::Entry;
use shared::keys::Keys;
use shared::urls::Urls;

/// Bytes of a command that responses repeat. A command may have a MiB, and lists, batches and events have
/// one for each sandbox.
const MAX_ECHOED_BYTES: usize = 8 << 10;
/// Ports whose URLs are in `work_hosts`.
const WORK_PORTS: [&str; 2] = ["work-1", "work-2"];

/// A sandbox as clients see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RuntimeInfo {
    /// Id of the sandbox, 16 lower-case letters; part of its URLs.
    pub(super) runtime_id: String,
    /// Name of the session, as in the start.
    pub(super) session_id: String,
    /// URL of the sandbox server, without a trailing slash; it never changes.
    pub(super) url: String,
    /// Key of the sandbox server, for the header `X-Session-API-Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub(super) session_api_key: Option<String>,
    pub(super) status: RuntimeStatus,
    pub(super) pod_status: PodStatus,
    /// Explains a state, and names ignored or capped fields of the start.
    pub(super) status_detail: Option<String>,
    /// URLs of applications in the sandbox, with their port.
    pub(super) work_hosts: BTreeMap<String, u16>,
    /// True until a pause is complete: the state is being saved, or the Pod ends. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pausing: bool,
    /// State that the last pause kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) persisted: Option<PersistedState>,
    /// State that the last start restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restored: Option<RestoredState>,
    /// Number of times that the processes began anew; it stays if a pause has kept them.
    pub(super) incarnation: u32,
    /// Restarts of the command since the start.
    pub(super) restart_count: u32,
    /// Reasons of the last restarts, for example `OOMKilled`.
    pub(super) restart_reasons: Vec<String>,
    /// Container status in Kubernetes' form, if the sandbox is not ready.
    pub(super) container_statuses: Vec<Value>,
    /// Last event (`type`, `reason`, `message`, `lastTimestamp`), if the sandbox is not ready.
    pub(super) events: Vec<Value>,
    /// End of the output of a failed command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub(super) pod_logs: Option<String>,
    pub(super) command: Option<EchoedCommand>,
    pub(super) image: Option<String>,
    pub(super) working_dir: Option<String>,
    /// Factor in effect, after the cap of the installation.
    pub(super) resource_factor: f64,
    /// CPU that the sandbox requests while it has a Pod, in thousandths of a core.
    pub(super) requested_cpu_millicores: Option<u64>,
    /// Memory that it requests then, in bytes.
    pub(super) requested_memory_bytes: Option<u64>,
    pub(super) runtime_class: Option<String>,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) created_at: Option<Timestamp>,
    /// Begin of the present run. Null while the sandbox has no Pod.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) started_at: Option<Timestamp>,
    /// Time at which the Pod of that run was scheduled. Null for one that was warm, and until it is ready.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) scheduled_at: Option<Timestamp>,
    /// Time at which its container started, with all images there. Null as the one before.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) container_started_at: Option<Timestamp>,
    /// Time at which the sandbox became ready in that run.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) ready_at: Option<Timestamp>,
    /// End of the last request that this replica forwarded to the sandbox; the begin of the run or
    /// of the replica, if there was none. Null while a request is open, and unless the sandbox runs.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub(super) idle_since: Option<Timestamp>,
}

/// State that a pause kept.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct PersistedState {
    level: PersistenceLevel,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    at: Option<Timestamp>,
    /// Bytes besides the workspace, if known.
    size: Option<i64>,
    /// Reason for which less was kept than asked for.
    reason: Option<String>,
}

/// State that a start restored. `Memory`: the processes went on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RestoredState {
    level: PersistenceLevel,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    at: Option<Timestamp>,
    /// Reason for which less was restored than asked for.
    reason: Option<String>,
}

impl PersistedState {
    fn of(status: &sandbox::PersistedState) -> Self {
        Self {
            level: status.level,
            at: status.at.as_ref().map(|at| at.0),
            size: status.size,
            reason: status.reason.clone(),
        }
    }
}

impl RestoredState {
    fn of(status: &sandbox::RestoredState) -> Self {
        Self {
            level: status.level,
            at: status.at.as_ref().map(|at| at.0),
            reason: status.reason.clone(),
        }
    }
}

/// Command in the shape in which the client sent it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum EchoedCommand {
    Line(String),
    Words(Vec<String>),
}

impl Api {
    /// Describes a sandbox. `None` for one without a session, which the API does not show.
    pub(super) fn info(&self, entry: &Entry) -> Option<RuntimeInfo> {
        let info = self.public_info(entry)?;
        let logs = pod_logs(entry, info.status, &self.sandboxes.keys);
        Some(RuntimeInfo {
            session_api_key: Some(self.session_key(entry)),
            pod_logs: Some(logs),
            ..info
        })
    }

    /// Describes a sandbox without its key and its logs.
    pub(super) fn public_info(&self, entry: &Entry) -> Option<RuntimeInfo> {
        let spec = &entry.spec;
        let session = entry.session()?;
        let id = &entry.runtime_id;
        let state = derive(entry);
        let requests = requests(entry, &self.resources);
        let started_at = started_at(entry, state.lifecycle);
        // Until it is ready again, the status has the stages of an earlier start.
        let reached = |at: &Option<Time>| {
            let at = at.as_ref().map(|at| at.0);
            at.filter(|at| is_running(entry) && started_at.is_some_and(|started| *at >= started))
        };
        let status = &entry.status;
        Some(RuntimeInfo {
            runtime_id: id.clone(),
            session_id: session.id.clone(),
            url: self.urls(entry).runtime(id),
            session_api_key: None,
            status: state.lifecycle,
            pod_status: state.pod,
            status_detail: state.detail,
            work_hosts: self.work_hosts(entry),
            pausing: is_pausing(entry),
            persisted: entry.status.persisted.as_ref().map(PersistedState::of),
            restored: entry.status.restored.as_ref().map(RestoredState::of),
            incarnation: entry.status.incarnation,
            restart_count: entry.status.restarts.count,
            restart_reasons: entry.status.restarts.reasons.clone(),
            container_statuses: container_statuses(entry, state.lifecycle),
            events: events(entry, state.lifecycle),
            pod_logs: None,
            command: command(entry),
            image: spec.image.clone(),
            working_dir: spec.working_dir.clone(),
            resource_factor: factor(entry).unwrap_or(1.0),
            requested_cpu_millicores: requests.millicores,
            requested_memory_bytes: requests.bytes,
            runtime_class: spec.runtime_class_name.clone(),
            created_at: entry.created_at,
            started_at,
            scheduled_at: reached(&status.scheduled_at),
            container_started_at: reached(&status.container_started_at),
            ready_at: reached(&status.ready_at),
            idle_since: self.idle_since(entry),
        })
    }

    /// Returns the end of the last activity that this replica knows of, in whole seconds as in
    /// Kubernetes.
    pub(super) fn idle_since(&self, entry: &Entry) -> Option<Timestamp> {
        if !is_running(entry) {
            return None;
        }
        let last = self.requests.idle_since(&entry.key)?;
        let last = Timestamp::from_second(last.as_second()).ok();
        last.max(entry.status.ready_at.as_ref().map(|at| at.0))
    }

    /// Returns the session key of the present Pod, or of the last one.
    fn session_key(&self, entry: &Entry) -> String {
        let rotation = entry.status.key_rotation.unwrap_or(0);
        let keys = self.sandboxes.keys.of(entry.created_at);
        keys.rotated_session_key(&entry.uid, rotation)
    }

    /// Returns the URLs in the form that is set for the owner.
    fn urls(&self, entry: &Entry) -> Cow<'_, Urls> {
        let tenant = entry.session().map_or("", |s| s.tenant.as_str());
        self.tenants.urls(&self.config().urls, tenant)
    }

    fn work_hosts(&self, entry: &Entry) -> BTreeMap<String, u16> {
        let urls = self.urls(entry);
        WORK_PORTS
            .iter()
            .filter_map(|name| Some((urls.port(&entry.runtime_id, name), entry.port(name)?)))
            .collect()
    }
}

fn started_at(entry: &Entry, lifecycle: RuntimeStatus) -> Option<Timestamp> {
    let runs = matches!(lifecycle, RuntimeStatus::Starting | RuntimeStatus::Running);
    let started_at = entry.status.started_at.as_ref().map(|at| at.0);
    started_at.filter(|_| runs && has_pod(entry.status.phase))
}

/// Returns the beginning of the command.
fn command(entry: &Entry) -> Option<EchoedCommand> {
    if let Some(line) = &entry.session()?.command_line {
        let end = line.floor_char_boundary(MAX_ECHOED_BYTES);
        return Some(EchoedCommand::Line(line[..end].to_owned()));
    }
    let mut left = MAX_ECHOED_BYTES;
    let words = entry.spec.command.as_ref()?.iter().map_while(|word| {
        left = left.checked_sub(word.len() + 1)?;
        Some(word.clone())
    });
    Some(EchoedCommand::Words(words.collect()))
}

// The last three fields of a failed start come from the status alone: no call to the API server.

/// Returns the container status of a sandbox that is not ready.
fn container_statuses(entry: &Entry, lifecycle: RuntimeStatus) -> Vec<Value> {
    let Some(reason) = reason(entry, lifecycle) else {
        return Vec::new();
    };
    let status = &entry.status;
    let last = status.restarts.reasons.last();
    let last = last.map(|reason| json!({"terminated": {"reason": reason}}));
    vec![json!({
        "name": crds::names::CONTAINER,
        "ready": false,
        "restartCount": status.restarts.count,
        "state": {"waiting": {"reason": reason, "message": status.message}},
        "lastState": last.unwrap_or_else(|| json!({})),
    })]
}

/// Returns the last event of a sandbox that is not ready.
fn events(entry: &Entry, lifecycle: RuntimeStatus) -> Vec<Value> {
    let Some(reason) = reason(entry, lifecycle) else {
        return Vec::new();
    };
    let mut conditions = entry.status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    let kind = match lifecycle {
        RuntimeStatus::Error => "Warning",
        _ => "Normal",
    };
    vec![json!({
        "type": kind,
        "reason": reason,
        "message": entry.status.message,
        "lastTimestamp": ready.map(|c| c.last_transition_time.0.to_string()),
    })]
}

/// Returns the log tail of a failed sandbox.
fn pod_logs(entry: &Entry, lifecycle: RuntimeStatus, keys: &Keys) -> String {
    let sealed = entry.status.sealed_log.as_deref();
    let Some(sealed) = sealed.filter(|_| lifecycle == RuntimeStatus::Error) else {
        return String::new();
    };
    let key = &entry.key;
    keys.open_log(&key.namespace, &key.name, sealed)
        .unwrap_or_default()
}

fn reason(entry: &Entry, lifecycle: RuntimeStatus) -> Option<Reason> {
    let unready = matches!(lifecycle, RuntimeStatus::Starting | RuntimeStatus::Error);
    let reason = entry.status.reason;
    reason.filter(|_| unready && entry.is_observed())
}
