//! Columns of built-in kinds, as the real server prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE,
    Cell::{self, Computed, Field},
    Column, NAME, NONE, age, pod,
};
use crate::api::object::items;

/// Name, priority and cell of each column. Columns of priority 1 are those of `-o wide`.
type Columns = &'static [(&'static str, i32, Cell)];

const PLAIN: Columns = &[NAME, AGE];
const NAMESPACES: Columns = &[NAME, ("Status", 0, Field("/status/phase")), AGE];
const LEASES: Columns = &[NAME, ("Holder", 0, Field("/spec/holderIdentity")), AGE];
const CLAIMS: Columns = &[
    NAME,
    ("Status", 0, Computed(claim_status)),
    ("Volume", 0, Field("/spec/volumeName")),
    ("Capacity", 0, Field("/status/capacity/storage")),
    ("Access Modes", 0, Computed(access_modes)),
    ("StorageClass", 0, Field("/spec/storageClassName")),
    AGE,
    ("VolumeMode", 1, Field("/spec/volumeMode")),
];
const SECRETS: Columns = &[
    NAME,
    ("Type", 0, Field("/type")),
    ("Data", 0, Computed(data_count)),
    AGE,
];
const CONFIG_MAPS: Columns = &[NAME, ("Data", 0, Computed(data_count)), AGE];
const NODES: Columns = &[
    NAME,
    ("Status", 0, Computed(node_status)),
    ("Roles", 0, NONE),
    AGE,
    ("Version", 0, Field("/status/nodeInfo/kubeletVersion")),
    ("OS-Image", 1, Field("/status/nodeInfo/osImage")),
];
/// Names come last because they carry no information.
const EVENTS: Columns = &[
    ("Last Seen", 0, Computed(last_seen)),
    ("Type", 0, Field("/type")),
    ("Reason", 0, Field("/reason")),
    ("Object", 0, Computed(subject)),
    ("Source", 1, Computed(source)),
    ("Message", 0, Computed(message)),
    ("Count", 1, Computed(occurrences)),
    ("Name", 1, Field("/metadata/name")),
];

pub(crate) fn builtin_columns(plural: &str) -> Vec<Column> {
    let columns = match plural {
        "namespaces" => NAMESPACES,
        "pods" => pod::COLUMNS,
        "persistentvolumeclaims" => CLAIMS,
        "secrets" => SECRETS,
        "configmaps" => CONFIG_MAPS,
        "events" => EVENTS,
        "nodes" => NODES,
        "leases" => LEASES,
        _ => PLAIN,
    };
    let columns = columns.iter();
    columns
        .map(|(name, priority, cell)| Column::new(name, *priority, cell.clone()))
        .collect()
}

fn claim_status(claim: &Value, _: Timestamp) -> Value {
    if claim["metadata"]["deletionTimestamp"].is_string() {
        json!("Terminating")
    } else {
        claim["status"]["phase"].clone()
    }
}

fn access_modes(claim: &Value, _: Timestamp) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "?",
    };
    let modes = items(&claim["spec"]["accessModes"]).iter().map(short);
    json!(modes.collect::<Vec<_>>().join(","))
}

fn data_count(object: &Value, _: Timestamp) -> Value {
    let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(count("data") + count("binaryData"))
}

fn node_status(node: &Value, _: Timestamp) -> Value {
    let mut conditions = items(&node["status"]["conditions"]).iter();
    let is_ready =
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    json!(if is_ready { "Ready" } else { "NotReady" })
}

/// Field of an Event by its core name or its name in `events.k8s.io`.
fn either<'a>(event: &'a Value, core: &str, new: &str) -> &'a Value {
    event.get(core).unwrap_or(&event[new])
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let times = [
        &event["series"]["lastObservedTime"],
        either(event, "lastTimestamp", "deprecatedLastTimestamp"),
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    json!(age(times.iter().find_map(|time| time.as_str()), now))
}

fn subject(event: &Value, _: Timestamp) -> Value {
    let subject = either(event, "involvedObject", "regarding");
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
}

fn source(event: &Value, _: Timestamp) -> Value {
    match &either(event, "source", "deprecatedSource")["component"] {
        Value::String(legacy) => json!(legacy),
        _ => either(event, "reportingComponent", "reportingController").clone(),
    }
}

fn message(event: &Value, _: Timestamp) -> Value {
    json!(
        either(event, "message", "note")
            .as_str()
            .unwrap_or_default()
            .trim()
    )
}

fn occurrences(event: &Value, _: Timestamp) -> Value {
    let count = event["series"]["count"].as_i64();
    let count = count.or_else(|| either(event, "count", "deprecatedCount").as_i64());
    json!(count.unwrap_or(1).to_string())
}
