//! Access to the metadata fields that the server uses. Objects stay untyped JSON, so that stored
//! objects survive even if they no longer fit a Rust type.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// String field of `metadata`; `None` if absent or empty.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"][field]
        .as_str()
        .filter(|text| !text.is_empty())
}

pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name").unwrap_or_default()
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace").unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    meta(object, "uid").unwrap_or_default()
}

pub(crate) fn resource_version(object: &Value) -> Option<&str> {
    meta(object, "resourceVersion")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some()
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    !items(&object["metadata"]["finalizers"]).is_empty()
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// Uids in `metadata.ownerReferences`.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let references = items(&object["metadata"]["ownerReferences"]).iter();
    references.filter_map(|reference| reference["uid"].as_str())
}

/// The items of a list; none of any other value.
pub(crate) fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Sets a field of `metadata`, or removes it when the value is null.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    let metadata = child_mut(as_object(object), "metadata");
    match value.into() {
        Value::Null => metadata.remove(field),
        value => metadata.insert(field.to_owned(), value),
    };
}

/// The object below `key`; created if it is missing or has another type.
pub(crate) fn child_mut<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    as_object(parent.entry(key).or_insert_with(|| json!({})))
}

/// The value as an object; any other type becomes an empty object.
pub(crate) fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Copies the top-level field `key` between objects; an absent field is removed.
pub(crate) fn copy_field(from: &Value, to: &mut Value, key: &str) {
    let to = as_object(to);
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// Timestamp in whole seconds, as Kubernetes writes them.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
