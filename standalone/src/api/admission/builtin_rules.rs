//! Defaults and immutability of built-in kinds, as far as controllers depend on them in real
//! clusters.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::api::{
    error::{ApiError, Cause, CauseReason},
    object::{self, as_object, child_mut},
    registry::Kind,
};

/// Fills in the defaults of the server.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => complete_pod(object),
        ("", "secrets") => complete_secret(object),
        ("", "namespaces") => default_at(object, "status", "phase", json!("Active")),
        ("", "persistentvolumeclaims") => {
            default_at(object, "status", "phase", json!("Pending"));
            default_at(object, "spec", "volumeMode", json!("Filesystem"));
        }
        _ => {}
    }
}

/// Rejects runtime classes, as an admission plug-in does. Standalone has none.
pub(super) fn admit(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let is_pod = (kind.group.as_str(), kind.plural.as_str()) == ("", "pods");
    let class = object.pointer("/spec/runtimeClassName");
    match class.and_then(Value::as_str).filter(|_| is_pod) {
        None => Ok(()),
        Some(class) => {
            let name = object::meta(object, "name").unwrap_or_default();
            Err(ApiError::Forbidden(format!(
                "pods \"{name}\" is forbidden: pod rejected: RuntimeClass \"{class}\" not found"
            )))
        }
    }
}

fn default_at(object: &mut Value, parent: &str, key: &str, value: Value) {
    child_mut(as_object(object), parent)
        .entry(key)
        .or_insert(value);
}

fn complete_pod(pod: &mut Value) {
    default_at(pod, "status", "phase", json!("Pending"));
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
    ] {
        default_at(pod, "spec", key, value);
    }
    let containers = pod
        .pointer_mut("/spec/containers")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for port in containers
        .filter_map(|container| container.get_mut("ports")?.as_array_mut())
        .flatten()
    {
        as_object(port)
            .entry("protocol")
            .or_insert_with(|| json!("TCP"));
    }
}

/// Moves the write-only `stringData` into `data`.
fn complete_secret(secret: &mut Value) {
    let fields = as_object(secret);
    fields.entry("type").or_insert_with(|| json!("Opaque"));
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = child_mut(fields, "data");
        for (key, text) in texts {
            data.insert(
                key,
                json!(STANDARD.encode(text.as_str().unwrap_or_default())),
            );
        }
    }
}

/// Checks requirements of a built-in kind beyond its types.
pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    if kind.is_pod() {
        check_containers(object)
    } else {
        Vec::new()
    }
}

fn check_containers(pod: &Value) -> Vec<Cause> {
    let containers = pod["spec"]["containers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if containers.is_empty() {
        return vec![Cause::new(
            CauseReason::Required,
            "spec.containers",
            "Required value",
        )];
    }
    let mut causes = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().is_none_or(str::is_empty) {
                causes.push(Cause::new(
                    CauseReason::Required,
                    format!("spec.containers[{index}].{field}"),
                    "Required value",
                ));
            }
        }
        if containers[..index]
            .iter()
            .any(|earlier| earlier["name"] == container["name"])
        {
            let message = format!("Duplicate value: {}", container["name"]);
            causes.push(Cause::new(
                CauseReason::Duplicate,
                format!("spec.containers[{index}].name"),
                message,
            ));
        }
    }
    causes
}

/// Rejects changes of immutable fields.
pub(super) fn check_change(kind: &Kind, current: &Value, object: &Value) -> Vec<Cause> {
    let forbidden = |message: &str| {
        vec![Cause::new(
            CauseReason::Forbidden,
            "spec",
            format!("Forbidden: {message}"),
        )]
    };
    if kind.is_pod() && fixed_pod_spec(current, current) != fixed_pod_spec(object, current) {
        return forbidden(
            "pod updates may not change fields other than \
                `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
             tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)",
        );
    }
    if kind.is("", "persistentvolumeclaims")
        && fixed_claim_spec(current, current) != fixed_claim_spec(object, current)
    {
        return forbidden(
            "spec is immutable after creation except resources.requests and \
                volumeAttributesClassName for bound claims",
        );
    }
    Vec::new()
}

/// Pod spec without the mutable fields. `nodeName` may be set once.
fn fixed_pod_spec(pod: &Value, current: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    let fields = as_object(&mut spec);
    for list in ["containers", "initContainers"] {
        for container in fields
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            as_object(container).remove("image");
        }
    }
    fields.remove("activeDeadlineSeconds");
    fields.remove("tolerations");
    if current["spec"]["nodeName"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        fields.remove("nodeName");
    }
    spec
}

fn fixed_claim_spec(claim: &Value, current: &Value) -> Value {
    let mut spec = claim["spec"].clone();
    let fields = as_object(&mut spec);
    fields.remove("resources");
    fields.remove("volumeAttributesClassName");
    for (field, unset) in [
        ("volumeName", &current["spec"]["volumeName"]),
        ("storageClassName", &current["spec"]["storageClassName"]),
    ] {
        if unset.is_null() {
            fields.remove(field);
        }
    }
    spec
}
