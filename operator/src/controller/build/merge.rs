//! `podTemplate`: a strategic-merge patch over the built Pod, as kubectl knows it. Maps merge, the
//! lists that Kubernetes keys merge by their keys, other lists and all values are replaced, and
//! null removes. `$patch` directives are not supported.

mod unknown;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};

use super::BuildError;

/// Where templates stand.
const PLACE: &str = "spec.podTemplate";
/// What a template consists of (PodTemplateSpec).
const PARTS: [&str; 2] = ["metadata", "spec"];

/// Lists that merge, and the field that tells their items apart.
const KEYS: [(&str, &str); 13] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("ports", "containerPort"),
    ("tolerations", "key"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("resourceClaims", "name"),
];

/// Metadata that decides whose Pod it is; no template may change it.
const PROTECTED: [&str; 4] = ["name", "namespace", "ownerReferences", "generateName"];

/// Lays a template over a Pod. Types that do not fit and fields that do not exist are faults, and
/// say where.
pub fn patched(pod: &Pod, template: &Value) -> Result<Pod, BuildError> {
    let built = serde_json::to_value(pod).map_err(|e| BuildError::at("spec", e))?;
    let mut result = built.clone();
    merge(&mut result, template, PLACE)?;
    if let Some(other) = other_part(template) {
        let fault = "a template has only metadata and spec";
        return Err(BuildError::at(format!("{PLACE}.{other}"), fault));
    }
    protect(&mut result, &built);
    let patched: Pod = serde_path_to_error::deserialize(&result)
        .map_err(|e| BuildError::within(PLACE.to_owned(), &e))?;
    let known = serde_json::to_value(&patched).map_err(|e| BuildError::at(PLACE, e))?;
    match unknown::first(&result, &known) {
        Some(path) => Err(BuildError::at(format!("{PLACE}{path}"), "no such field")),
        None => Ok(patched),
    }
}

fn other_part(template: &Value) -> Option<&String> {
    let mut names = template.as_object()?.keys();
    names.find(|name| !PARTS.contains(&name.as_str()))
}

/// Restores identity: the operator finds its Pods by it, and the garbage collector too.
fn protect(result: &mut Value, built: &Value) {
    for field in PROTECTED {
        if let Some(metadata) = result["metadata"].as_object_mut() {
            match built["metadata"].get(field) {
                Some(own) => metadata.insert(field.into(), own.clone()),
                None => metadata.remove(field),
            };
        }
    }
    if let (Some(labels), Some(own)) = (
        result["metadata"]["labels"].as_object_mut(),
        built["metadata"]["labels"].as_object(),
    ) {
        labels.extend(own.clone());
    } else {
        result["metadata"]["labels"] = built["metadata"]["labels"].clone();
    }
}

fn merge(target: &mut Value, template: &Value, path: &str) -> Result<(), BuildError> {
    let Some(template) = template.as_object() else {
        return Err(BuildError::at(path, "must be an object"));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else {
        return Ok(());
    };
    for (name, value) in template {
        let place = format!("{path}.{name}");
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(_) => merge(target.entry(name).or_insert(Value::Null), value, &place)?,
            Value::Array(items) if key_of(name).is_some() => {
                let list = target
                    .entry(name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                merge_list(list, items, key_of(name).unwrap_or("name"), &place)?;
            }
            _ => {
                target.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(
    target: &mut Value,
    items: &[Value],
    key: &str,
    path: &str,
) -> Result<(), BuildError> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(target) = target.as_array_mut() else {
        return Ok(());
    };
    for (at, item) in items.iter().enumerate() {
        let place = format!("{path}[{at}]");
        if !item.is_object() {
            return Err(BuildError::at(place, "must be an object"));
        }
        // Tolerations of everything have no key, so several may; they are added.
        let same = |known: &&mut Value| item.get(key).is_some() && known.get(key) == item.get(key);
        match target.iter_mut().find(same) {
            Some(known) => merge(known, item, &place)?,
            None => target.push(item.clone()),
        }
    }
    Ok(())
}

fn key_of(list: &str) -> Option<&'static str> {
    let known = KEYS.iter().find(|(name, _)| *name == list);
    known.map(|(_, key)| *key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"mine": "1"}},
            "spec": {"containers": [{"name": "sandbox", "image": "i", "env": [{"name": "A", "value": "1"}]}]}
        }))
        .unwrap()
    }

    fn merged(template: &Value) -> Value {
        serde_json::to_value(patched(&pod(), template).unwrap()).unwrap()
    }

    #[test]
    fn keyed_lists_merge_by_their_keys() {
        let result = merged(&json!({"spec": {"containers": [
            {"name": "sandbox", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
            {"name": "side", "image": "s"}
        ]}}));
        let containers = &result["spec"]["containers"];
        assert_eq!(containers[0]["image"], "i");
        assert_eq!(
            containers[0]["env"],
            json!([{"name": "A", "value": "2"}, {"name": "B", "value": "3"}])
        );
        assert_eq!(containers[1]["name"], "side");
    }

    #[test]
    fn other_values_are_replaced_and_null_removes() {
        let result = merged(&json!({
            "metadata": {"annotations": {"x": "y"}},
            "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "sandbox", "env": null}]}
        }));
        assert_eq!(result["spec"]["nodeSelector"], json!({"a": "b"}));
        assert_eq!(result["metadata"]["annotations"]["x"], "y");
        assert!(result["spec"]["containers"][0].get("env").is_none());
    }

    #[test]
    fn identity_stays() {
        let result = merged(&json!({"metadata": {
            "name": "other", "labels": {"mine": "2", "more": "3"}, "ownerReferences": []
        }}));
        assert_eq!(result["metadata"]["name"], "a");
        assert_eq!(
            result["metadata"]["labels"],
            json!({"mine": "1", "more": "3"})
        );
        assert!(result["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn faults_name_their_place() {
        let fault = |template| patched(&pod(), &template).unwrap_err().to_string();
        assert_eq!(
            fault(json!({"spec": {"containers": ["x"]}})),
            "spec.podTemplate.spec.containers[0]: must be an object"
        );
        for (template, place) in [
            (
                json!({"spec": {"containers": [{"name": "sandbox", "tty": 3}]}}),
                "spec.podTemplate.spec.containers[0].tty: ",
            ),
            (
                json!({"spec": {"nodeSelector": ["a"]}}),
                "spec.podTemplate.spec.nodeSelector: ",
            ),
            (json!({"spec": 3}), "spec.podTemplate.spec"),
            (
                json!({"metadata": {"annotations": {"a": 1}}}),
                "spec.podTemplate.metadata.annotations",
            ),
            (
                json!({"spec": {"priorityClas": "high"}}),
                "spec.podTemplate.spec.priorityClas: no such field",
            ),
            (
                json!({"spec": {"containers": [{"name": "sandbox", "livenessProbe": {"httpGet": {"prot": 1, "port": 80}}}]}}),
                "spec.podTemplate.spec.containers[0].livenessProbe.httpGet.prot: no such field",
            ),
            (
                json!({"status": {"phase": "Running"}}),
                "spec.podTemplate.status: ",
            ),
        ] {
            let fault = fault(template);
            assert!(fault.starts_with(place), "{fault}");
        }
    }
}
