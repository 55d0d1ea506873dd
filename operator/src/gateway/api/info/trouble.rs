//! What keeps a sandbox from running, in the shape in which clients log it: `container_statuses`,
//! `events` and `pod_logs` (runtime API spec 1.3). From the status alone, so it costs nothing and
//! is told while the API server is away too.

use crds::conditions::{ConditionType, Reason};
use serde_json::{Value, json};

use super::Lifecycle;
use crate::index::Entry;
use crate::keys::Keys;

/// The sandbox's container, while it is not ready.
pub(super) fn containers(entry: &Entry, lifecycle: Lifecycle) -> Vec<Value> {
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

/// The last thing that happened to it, while it is not ready.
pub(super) fn events(entry: &Entry, lifecycle: Lifecycle) -> Vec<Value> {
    let Some(reason) = reason(entry, lifecycle) else {
        return Vec::new();
    };
    let mut conditions = entry.status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    let kind = match lifecycle {
        Lifecycle::Error => "Warning",
        _ => "Normal",
    };
    vec![json!({
        "type": kind,
        "reason": reason,
        "message": entry.status.message,
        "lastTimestamp": ready.map(|c| c.last_transition_time.0.to_string()),
    })]
}

/// The end of the log of a failed one.
pub(super) fn log(entry: &Entry, lifecycle: Lifecycle, keys: &Keys) -> String {
    let sealed = entry.status.sealed_log.as_deref();
    let Some(sealed) = sealed.filter(|_| lifecycle == Lifecycle::Error) else {
        return String::new();
    };
    let key = &entry.key;
    keys.open_log(&key.namespace, &key.name, sealed)
        .unwrap_or_default()
}

fn reason(entry: &Entry, lifecycle: Lifecycle) -> Option<&'static str> {
    let unready = matches!(lifecycle, Lifecycle::Starting | Lifecycle::Error);
    let reason = entry
        .status
        .reason
        .filter(|_| unready && entry.is_observed());
    reason.map(Reason::as_str)
}
