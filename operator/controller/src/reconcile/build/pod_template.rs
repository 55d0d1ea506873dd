//! Merges `podTemplate` (a PodTemplateSpec) into the built Pod by the merge rules of the Kubernetes
//! schema (`docs/decisions/095-pod-template-merge.md`). Wrong types, unknown fields and nulls are
//! errors with their path.

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec, Toleration};
use serde_json::Value;

use super::BuildError;

/// Path of the template in the Sandbox.
const TEMPLATE_PATH: &str = "spec.podTemplate";

/// Applies a template to a Pod. Only labels and annotations of its metadata can change; the labels
/// of the operator stay.
pub(super) fn apply_template(pod: &Pod, template: &Value) -> Result<Pod, BuildError> {
    let patch = parse(template)?;
    let mut merged = pod.clone();
    if let Some(metadata) = patch.metadata {
        let own = &mut merged.metadata;
        let labels = metadata.labels.unwrap_or_default().into_iter();
        let labels = labels.chain(own.labels.take().unwrap_or_default());
        own.labels = Some(labels.collect());
        if let Some(annotations) = metadata.annotations {
            own.annotations.get_or_insert_default().extend(annotations);
        }
    }
    if let (Some(spec), Some(patch)) = (&mut merged.spec, patch.spec) {
        merge_spec(spec, patch);
    }
    Ok(merged)
}

fn parse(template: &Value) -> Result<PodTemplateSpec, BuildError> {
    let at =
        |path: String, detail: &str| Err(BuildError::at(format!("{TEMPLATE_PATH}{path}"), detail));
    let patch: PodTemplateSpec = serde_path_to_error::deserialize(template)
        .map_err(|e| BuildError::at_path(TEMPLATE_PATH.to_owned(), &e))?;
    let known = serde_json::to_value(&patch).map_err(|e| BuildError::at(TEMPLATE_PATH, e))?;
    if let Some(path) = first_unknown(template, &known) {
        return at(path, "no such field");
    }
    if let Some(path) = first_null(&template["spec"]) {
        return at(
            format!(".spec{path}"),
            "must not be null: a template removes no fields",
        );
    }
    let metadata = template["metadata"].as_object().into_iter().flatten();
    let mut other = metadata.filter(|(name, value)| {
        !value.is_null() && !matches!(name.as_str(), "labels" | "annotations")
    });
    match other.next() {
        Some((name, _)) => at(
            format!(".metadata.{name}"),
            "only labels and annotations can be set",
        ),
        None => Ok(patch),
    }
}

/// Merges the spec. For Kubernetes the two placement lists are atomic; here those of the
/// installation are kept, as admission plugins do.
fn merge_spec(spec: &mut PodSpec, patch: PodSpec) {
    let selector = spec.node_selector.take();
    let tolerations = spec.tolerations.take().unwrap_or_default();
    spec.merge_from(patch);
    if let Some(mut selector) = selector {
        selector.extend(spec.node_selector.take().unwrap_or_default());
        spec.node_selector = Some(selector);
    }
    let merged = spec.tolerations.get_or_insert_default();
    for toleration in tolerations {
        if !merged
            .iter()
            .any(|other| is_same_toleration(other, &toleration))
        {
            merged.push(toleration);
        }
    }
}

/// Identity of a toleration in Kubernetes: all fields but `tolerationSeconds`.
fn is_same_toleration(a: &Toleration, b: &Toleration) -> bool {
    (&a.key, &a.effect, &a.operator, &a.value) == (&b.key, &b.effect, &b.operator, &b.value)
}

/// Path of the first null; begins with a dot or a bracket.
fn first_null(value: &Value) -> Option<String> {
    let below = |value: &Value, path: String| match value {
        Value::Null => Some(path),
        value => Some(path + &first_null(value)?),
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .find_map(|(name, value)| below(value, format!(".{name}"))),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| below(item, format!("[{at}]")))
        }
        _ => None,
    }
}

/// Path of the first field of `given` that is missing in `known`, which is `given` after
/// deserializing and serializing it; begins with a dot. Typed objects drop such fields silently, so
/// a misspelled field would have no effect and no error.
fn first_unknown(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| {
            let path = format!(".{name}");
            match known.get(name) {
                Some(known) => Some(path + &first_unknown(value, known)?),
                // Empty values may be left out.
                None => (!is_empty(value)).then_some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => {
            let mut pairs = given.iter().zip(known).enumerate();
            pairs.find_map(|(at, (given, known))| {
                Some(format!("[{at}]{}", first_unknown(given, known)?))
            })
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"mine": "1"}},
            "spec": {
                "nodeSelector": {"a": "1", "b": "1"},
                "tolerations": [{"key": "lost", "effect": "NoExecute", "tolerationSeconds": 30}],
                "containers": [{"name": "sandbox", "image": "i", "env": [{"name": "A", "value": "1"}]}],
            }
        }))
        .unwrap()
    }

    fn merged(template: &Value) -> Value {
        serde_json::to_value(apply_template(&pod(), template).unwrap()).unwrap()
    }

    #[test]
    fn lists_with_merge_key_merge_by_it() {
        let result = merged(&json!({"spec": {"containers": [
            {"name": "sandbox", "args": ["x"], "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
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
    fn placement_of_installation_is_kept() {
        let lost = json!({"key": "lost", "effect": "NoExecute", "tolerationSeconds": 30});
        let twice = json!([
            {"key": "gpu", "effect": "NoSchedule"},
            {"key": "gpu", "effect": "NoExecute"},
        ]);
        let spec = merged(&json!({"spec": {"tolerations": twice, "nodeSelector": {"b": "2"}}}));
        let expected = json!([twice[0], twice[1], lost]);
        assert_eq!(spec["spec"]["tolerations"], expected);
        assert_eq!(spec["spec"]["nodeSelector"], json!({"a": "1", "b": "2"}));
        let own = json!([{"key": "lost", "effect": "NoExecute", "tolerationSeconds": 5}]);
        let spec = merged(&json!({"spec": {"tolerations": own}}));
        assert_eq!(spec["spec"]["tolerations"], own);
    }

    #[test]
    fn labels_of_operator_are_kept() {
        let result = merged(&json!({"metadata": {
            "creationTimestamp": null, "annotations": {"x": "y"}, "labels": {"mine": "2", "more": "3"}
        }}));
        let labels = json!({"mine": "1", "more": "3"});
        assert_eq!(result["metadata"]["labels"], labels);
        assert_eq!(result["metadata"]["annotations"]["x"], "y");
    }

    /// Templates, each with the start of its error.
    const FAULTS: &str = r#"
3 | :
{"spec": 3} | .spec:
{"spec": {"containers": ["x"]}} | .spec.containers[0]:
{"spec": {"containers": [{"name": "sandbox", "tty": 3}]}} | .spec.containers[0].tty:
{"metadata": {"annotations": {"a": 1}}} | .metadata.annotations
{"metadata": {"finalizers": ["f"]}} | .metadata.finalizers: only labels and annotations
{"spec": {"priorityClas": "high"}} | .spec.priorityClas: no such field
{"spec": {"containers": [{"name": "sandbox", "livenessProbe": {"httpGet": {"prot": 1, "port": 80}}}]}} | .spec.containers[0].livenessProbe.httpGet.prot: no such field
{"spec": {"containers": [{"name": "sandbox", "securityContext": null}]}} | .spec.containers[0].securityContext: must not be null
{"status": {"phase": "Running"}} | .status:
"#;

    #[test]
    fn errors_name_path_of_field() {
        for row in FAULTS.trim().lines() {
            let (template, path) = row.split_once(" | ").unwrap();
            let template = serde_json::from_str(template).unwrap();
            let error = apply_template(&pod(), &template).unwrap_err().to_string();
            let path = format!("spec.podTemplate{path}");
            assert!(error.starts_with(&path), "{error}");
        }
    }
}
