//! Pruning of unknown fields. Their paths become errors or warnings of field validation.

use serde_json::{Map, Value};

use super::join_path;

/// Prunes a whole resource. `apiVersion`, `kind` and `metadata` are always known.
pub(super) fn prune_root(schema: &Value, object: &mut Value, unknown: &mut Vec<String>) {
    prune_resource(schema, object, "", unknown);
}

fn prune_resource(schema: &Value, object: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let Value::Object(fields) = object else {
        return;
    };
    let kept: Vec<_> = ["apiVersion", "kind", "metadata"]
        .iter()
        .filter_map(|&key| fields.remove_entry(key))
        .collect();
    prune_fields(schema, fields, path, unknown);
    fields.extend(kept);
}

fn prune(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    if schema["x-kubernetes-embedded-resource"] == true {
        return prune_resource(schema, value, path, unknown);
    }
    match value {
        Value::Object(fields) => prune_fields(schema, fields, path, unknown),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: &Value,
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["additionalProperties"] == true;
    fields.retain(|key, value| {
        let known = schema["properties"]
            .get(key)
            .or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()));
        if let Some(known) = known {
            prune(known, value, &join_path(path, key), unknown);
        } else if !open {
            unknown.push(join_path(path, key));
        }
        known.is_some() || open
    });
}
