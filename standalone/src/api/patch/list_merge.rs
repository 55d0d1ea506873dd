//! Merge types of lists: merge keys of built-in fields, and list types declared by a schema.

use serde_json::Value;

use crate::api::object::items;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// Scalars without duplicates.
    Set,
    /// Objects identified by these fields.
    Map(Vec<String>),
}

/// Merge type of a built-in list, by field name and one of its items.
pub(super) fn builtin(field: &str, sample: Option<&Value>) -> ListKind {
    let keys: &[&str] = match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "resourceClaims" => &["name"],
        "ports" if sample.is_some_and(|item| item.get("containerPort").is_some()) => {
            &["containerPort"]
        }
        "ports" if sample.is_some_and(|item| item.get("port").is_some()) => &["port"],
        "conditions" => &["type"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "ownerReferences" => &["uid"],
        "hostAliases" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey"],
        "finalizers" => return ListKind::Set,
        _ => return ListKind::Atomic,
    };
    ListKind::Map(keys.iter().map(|&key| key.to_owned()).collect())
}

pub(super) fn declared(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = items(&schema["x-kubernetes-list-map-keys"]).iter();
            ListKind::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// True if two items have the same keys.
pub(super) fn same(a: &Value, b: &Value, keys: &[String]) -> bool {
    keys.iter().all(|key| a.get(key) == b.get(key))
}
