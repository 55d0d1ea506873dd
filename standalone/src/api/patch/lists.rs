//! How lists merge. Kubernetes merges some lists item by item, by a key that depends on the field; for custom resources
//! the schema says which, for everything else this table does.

use serde_json::Value;

/// What identifies an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects that are the same when these fields are.
    Map(Vec<String>),
}

/// The built-in lists, by field name and one item of either side.
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

/// The list type a schema declares.
pub(super) fn declared(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten();
            ListKind::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// Whether two items are the same one.
pub(super) fn same(a: &Value, b: &Value, keys: &[String]) -> bool {
    keys.iter().all(|key| a.get(key) == b.get(key))
}
