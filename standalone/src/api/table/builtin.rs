//! Columns of built-in kinds, as the real server prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age};

pub(crate) fn plain_columns() -> Vec<Column> {
    vec![name(), age_column()]
}

pub(super) fn name() -> Column {
    Column::computed("Name", |object, _| object["metadata"]["name"].clone())
}

pub(super) fn age_column() -> Column {
    Column::computed("Age", age::of_object)
}

pub(crate) fn namespace_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Status", |object, _| object["status"]["phase"].clone()),
        age_column(),
    ]
}

pub(crate) fn claim_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Status", |claim, _| {
            if claim["metadata"]["deletionTimestamp"].is_string() {
                json!("Terminating")
            } else {
                claim["status"]["phase"].clone()
            }
        }),
        Column::computed("Volume", |claim, _| claim["spec"]["volumeName"].clone()),
        Column::computed("Capacity", |claim, _| {
            claim["status"]["capacity"]["storage"].clone()
        }),
        Column::computed("Access Modes", |claim, _| {
            access_modes(&claim["spec"]["accessModes"])
        }),
        Column::computed("StorageClass", |claim, _| {
            claim["spec"]["storageClassName"].clone()
        }),
        age_column(),
        Column::wide("VolumeMode", |claim, _| {
            claim["spec"]
                .get("volumeMode")
                .cloned()
                .unwrap_or_else(|| json!("Filesystem"))
        }),
    ]
}

fn access_modes(modes: &Value) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "?",
    };
    json!(
        modes
            .as_array()
            .into_iter()
            .flatten()
            .map(short)
            .collect::<Vec<_>>()
            .join(",")
    )
}

pub(crate) fn secret_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Type", |secret, _| secret["type"].clone()),
        Column::computed("Data", |secret, _| json!(count(&secret["data"]))),
        age_column(),
    ]
}

pub(crate) fn config_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Data", |config, _| {
            json!(count(&config["data"]) + count(&config["binaryData"]))
        }),
        age_column(),
    ]
}

fn count(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

pub(crate) fn node_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Status", |node, _| {
            json!(if is_ready(node) { "Ready" } else { "NotReady" })
        }),
        Column::computed("Roles", |_, _| json!("<none>")),
        age_column(),
        Column::computed("Version", |node, _| {
            node["status"]["nodeInfo"]["kubeletVersion"].clone()
        }),
        Column::wide("OS-Image", |node, _| {
            node["status"]["nodeInfo"]["osImage"].clone()
        }),
    ]
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(crate) fn lease_columns() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Holder", |lease, _| lease["spec"]["holderIdentity"].clone()),
        age_column(),
    ]
}

/// Columns of Events; names come last because they carry no information.
pub(crate) fn event_columns() -> Vec<Column> {
    vec![
        Column::computed("Last Seen", last_seen),
        Column::computed("Type", |event, _| event["type"].clone()),
        Column::computed("Reason", |event, _| event["reason"].clone()),
        Column::computed("Object", |event, _| subject(event)),
        Column::wide("Source", |event, _| source(event)),
        Column::computed("Message", |event, _| {
            json!(
                either(event, "message", "note")
                    .as_str()
                    .unwrap_or_default()
                    .trim()
            )
        }),
        Column::wide("Count", |event, _| json!(occurrences(event).to_string())),
        Column {
            priority: 1,
            ..name()
        },
    ]
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
    json!(age::since(times.iter().find_map(|time| time.as_str()), now))
}

fn subject(event: &Value) -> Value {
    let subject = either(event, "involvedObject", "regarding");
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
}

fn source(event: &Value) -> Value {
    let legacy = &either(event, "source", "deprecatedSource")["component"];
    if legacy.is_string() {
        legacy.clone()
    } else {
        either(event, "reportingComponent", "reportingController").clone()
    }
}

fn occurrences(event: &Value) -> i64 {
    let count = event["series"]["count"]
        .as_i64()
        .or_else(|| either(event, "count", "deprecatedCount").as_i64());
    count.unwrap_or(1)
}
