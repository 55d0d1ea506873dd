//! The fields `container_statuses`, `events` and `pod_logs`, which clients log when a start fails
//! (`docs/specs/runtime-api.md`, section 1.3). They come from the status alone, so that they do not
//! depend on the API server.

use crds::conditions::{ConditionType, Reason};
use serde_json::{Value, json};

use crate::runtime_status::RuntimeStatus;
use shared::index::Entry;
use shared::keys::Keys;

/// Returns the container status of a sandbox that is not ready.
pub(super) fn container_statuses(entry: &Entry, lifecycle: RuntimeStatus) -> Vec<Value> {
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
pub(super) fn events(entry: &Entry, lifecycle: RuntimeStatus) -> Vec<Value> {
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
pub(super) fn pod_logs(entry: &Entry, lifecycle: RuntimeStatus, keys: &Keys) -> String {
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
