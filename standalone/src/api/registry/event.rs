//! Kind `Event` of `events.k8s.io`, an alias of the core kind. Events are stored in the core form,
//! which `kubectl get events` and `describe` read.

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::{Alias, Kind, builtin};
use crate::api::object::as_object;

pub(super) fn kind() -> Kind {
    Kind {
        alias: Some(Alias {
            from_stored: to_new,
            to_stored: to_core,
        }),
        ..builtin::namespaced::<Event>("events", &["ev"])
    }
}

/// Field names in the core group and in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn to_new(stored: &Value) -> Value {
    renamed(stored, "events.k8s.io/v1", RENAMED)
}

fn to_core(new: &Value) -> Value {
    renamed(new, "v1", RENAMED.map(|(core, new)| (new, core)))
}

fn renamed(event: &Value, api_version: &str, fields: [(&str, &str); 7]) -> Value {
    let mut event = event.clone();
    let event_fields = as_object(&mut event);
    for (from, to) in fields {
        if let Some(value) = event_fields.remove(from) {
            event_fields.insert(to.to_owned(), value);
        }
    }
    event["apiVersion"] = json!(api_version);
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_alias_round_trips() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "m",
            "involvedObject": {"name": "x"}, "reason": "R"});
        let new = to_new(&core);
        assert_eq!(new["note"], "m");
        assert_eq!(new["regarding"]["name"], "x");
        assert_eq!(to_core(&new), core);
    }
}
