//! Kind `Event` of `events.k8s.io`, an alias of the core kind. Events are stored in the core form,
//! which `kubectl get events` and `describe` read.

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::{Alias, Kind, builtin};
use crate::api::{object::as_object, table};

pub(super) fn kind() -> Kind {
    Kind {
        namespaced: true,
        short_names: vec!["ev".to_owned()],
        columns: table::event_columns(),
        alias: Some(Alias {
            from_stored: to_new,
            to_stored: to_core,
        }),
        ..builtin::cluster::<Event>("events", &[])
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
    let mut event = stored.clone();
    rename(&mut event, |(core, new)| (core, new));
    as_object(&mut event).insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
    event
}

fn to_core(new: &Value) -> Value {
    let mut event = new.clone();
    rename(&mut event, |(core, new)| (new, core));
    as_object(&mut event).insert("apiVersion".to_owned(), json!("v1"));
    event
}

fn rename(
    event: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = as_object(event);
    for (from, to) in RENAMED.map(direction) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
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
