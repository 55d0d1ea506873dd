//! Encoding of watch events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{
    error::ApiError,
    registry::Kind,
    store::{Change, Event},
};

/// One event; borrows the object, which may be large.
#[derive(Serialize)]
struct EventLine<'a> {
    r#type: &'a str,
    object: &'a Value,
}

pub(super) fn event_line(event: &str, object: &Value) -> Bytes {
    let mut line = serde_json::to_vec(&EventLine {
        r#type: event,
        object,
    })
    .unwrap_or_default();
    line.push(b'\n');
    line.into()
}

pub(super) fn error_line(error: &ApiError) -> Bytes {
    event_line("ERROR", &error.to_status())
}

/// Encodes a bookmark. The last one of a streamed list marks its end.
pub(super) fn bookmark(kind: &Kind, revision: u64, initial_end: bool) -> Bytes {
    let mut object = json!({"kind": kind.name, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": revision.to_string()}});
    if initial_end {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    event_line("BOOKMARK", &object)
}

/// Event type for a watcher that sees only matching objects.
pub(super) fn event_type(event: &Event, matches: impl Fn(&Value) -> bool) -> Option<&'static str> {
    let before = event
        .previous
        .as_ref()
        .is_some_and(|previous| matches(previous));
    let after = event.change != Change::Deleted && matches(&event.object);
    match (before, after) {
        (false, true) => Some("ADDED"),
        (true, true) => Some("MODIFIED"),
        (true, false) => Some("DELETED"),
        (false, false) => None,
    }
}
