//! Defaults and immutability of built-in kinds, as far as controllers depend on them in real
//! clusters.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::api::{
    error::{ApiError, Cause, CauseReason},
    object::{self, as_object, child_mut, items},
    registry::Kind,
};
use crate::network_policy;

/// Fills in the defaults of the server.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => complete_pod(object),
        ("", "secrets") => complete_secret(object),
        ("", "namespaces") => {
            default_at(object, "status", "phase", json!("Active"));
            let name = json!(object::name(object));
            let metadata = child_mut(as_object(object), "metadata");
            child_mut(metadata, "labels").insert("kubernetes.io/metadata.name".into(), name);
        }
        ("", "persistentvolumeclaims") => {
            default_at(object, "status", "phase", json!("Pending"));
            default_at(object, "spec", "volumeMode", json!("Filesystem"));
        }
        _ => {}
    }
}

/// Rejects runtime classes, as an admission plug-in does. Standalone has none.
pub(super) fn admit(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let class = object["spec"]["runtimeClassName"].as_str();
    let Some(class) = class.filter(|_| kind.is_pod()) else {
        return Ok(());
    };
    let name = object::name(object);
    Err(ApiError::Forbidden(format!(
        "pods \"{name}\" is forbidden: pod rejected: RuntimeClass \"{class}\" not found"
    )))
}

fn default_at(object: &mut Value, parent: &str, key: &str, value: Value) {
    let parent = child_mut(as_object(object), parent);
    parent.entry(key).or_insert(value);
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
    for container in containers_mut(&mut pod["spec"], "containers") {
        let ports = container.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            as_object(port).entry("protocol").or_insert(json!("TCP"));
        }
    }
}

fn containers_mut<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let containers = spec.get_mut(list).and_then(Value::as_array_mut);
    containers.into_iter().flatten()
}

/// Moves the write-only `stringData` into `data`.
fn complete_secret(secret: &mut Value) {
    let fields = as_object(secret);
    fields.entry("type").or_insert(json!("Opaque"));
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = child_mut(fields, "data");
        for (key, text) in texts {
            let text = text.as_str().unwrap_or_default();
            data.insert(key, json!(STANDARD.encode(text)));
        }
    }
}

/// Checks requirements of a built-in kind beyond its types.
pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    if kind.is("networking.k8s.io", "networkpolicies") {
        return check_network_policy(object).into_iter().collect();
    }
    if !kind.is_pod() {
        return Vec::new();
    }
    let containers = items(&object["spec"]["containers"]);
    if containers.is_empty() {
        return vec![Cause::required("spec.containers")];
    }
    let mut causes = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let path = |field: &str| format!("spec.containers[{index}].{field}");
        for field in ["name", "image"] {
            if container[field].as_str().is_none_or(str::is_empty) {
                causes.push(Cause::required(path(field)));
            }
        }
        let name = &container["name"];
        if containers[..index]
            .iter()
            .any(|earlier| earlier["name"] == *name)
        {
            causes.push(Cause::duplicate(path("name"), &name.to_string()));
        }
    }
    causes
}

fn check_network_policy(object: &Value) -> Option<Cause> {
    let policy = serde_json::from_value(object.clone()).ok()?;
    let error = network_policy::validate(&policy).err()?;
    let message = format!("Invalid value: {error}");
    Some(Cause::new(CauseReason::FieldValueInvalid, "spec", message))
}

/// Rejects changes of immutable fields.
pub(super) fn check_change(kind: &Kind, current: &Value, object: &Value) -> Option<Cause> {
    let (fixed, message): (fn(&Value, &Value) -> Value, _) = if kind.is_pod() {
        let message = "pod updates may not change fields other than \
            `spec.containers[*].image`,`spec.initContainers[*].image`,\
            `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
            tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
            previously negative)";
        (fixed_pod_spec, message)
    } else if kind.is("", "persistentvolumeclaims") {
        let message = "spec is immutable after creation except resources.requests and \
            volumeAttributesClassName for bound claims";
        (fixed_claim_spec, message)
    } else {
        return None;
    };
    let is_changed = fixed(current, current) != fixed(object, current);
    let message = format!("Forbidden: {message}");
    is_changed.then(|| Cause::new(CauseReason::FieldValueForbidden, "spec", message))
}

/// Pod spec without the mutable fields. `nodeName` may be set once.
fn fixed_pod_spec(pod: &Value, current: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    for list in ["containers", "initContainers"] {
        for container in containers_mut(&mut spec, list) {
            as_object(container).remove("image");
        }
    }
    let fields = as_object(&mut spec);
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
    for field in ["volumeName", "storageClassName"] {
        if current["spec"][field].is_null() {
            fields.remove(field);
        }
    }
    spec
}
