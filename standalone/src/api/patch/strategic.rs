//! Strategic merge patch for built-in kinds: merge keys and `$patch` directives.

use serde_json::{Map, Value, json};

use super::list_merge::{ListKind, builtin, same};
use crate::api::object::{as_object, items};

pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if patch["$patch"] == "replace" {
        *target = without_directives(patch);
        return;
    }
    let target = as_object(target);
    for (key, value) in fields {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            remove_scalars(target, list, value);
        } else if !key.starts_with('$') {
            merge_field(target, key, value);
        }
    }
}

fn merge_field(target: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        value if value.is_null() || value["$patch"] == "delete" => {
            target.remove(key);
        }
        Value::Object(_) => merge(target.entry(key).or_insert(Value::Null), value),
        Value::Array(items) => merge_list(
            target
                .entry(key)
                .or_insert_with(|| Value::Array(Vec::new())),
            key,
            items,
        ),
        scalar => {
            target.insert(key.to_owned(), scalar.clone());
        }
    }
}

fn merge_list(target: &mut Value, field: &str, items: &[Value]) {
    let replace = items.contains(&json!({"$patch": "replace"}));
    let is_plain = |item: &&Value| item["$patch"].is_null();
    let sample = items.iter().find(is_plain).or(items.first());
    let kind = builtin(field, sample);
    let Value::Array(current) = target else {
        *target = Value::Array(items.iter().map(without_directives).collect());
        return;
    };
    match kind {
        ListKind::Map(keys) if !replace => items
            .iter()
            .for_each(|item| merge_item(current, item, &keys)),
        ListKind::Set if !replace => {
            let new: Vec<_> = items
                .iter()
                .filter(|item| !current.contains(item))
                .cloned()
                .collect();
            current.extend(new);
        }
        _ => {
            *current = items
                .iter()
                .filter(is_plain)
                .map(without_directives)
                .collect();
        }
    }
}

fn merge_item(current: &mut Vec<Value>, item: &Value, keys: &[String]) {
    let position = current
        .iter()
        .position(|existing| same(existing, item, keys));
    let delete = item["$patch"] == "delete";
    match position {
        Some(index) if delete => {
            current.remove(index);
        }
        Some(index) => merge(&mut current[index], item),
        None if delete => {}
        None => current.push(without_directives(item)),
    }
}

fn remove_scalars(target: &mut Map<String, Value>, list: &str, removed: &Value) {
    let removed = items(removed);
    if let Some(Value::Array(list)) = target.get_mut(list) {
        list.retain(|item| !removed.contains(item));
    }
}

/// Patch value as plain data, without nulls and `$` keys.
fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter(|(key, value)| !key.starts_with('$') && !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_directives(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(without_directives).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_merges_as_in_a_cluster() {
        let (x, y) = (
            json!({"name": "X", "value": "1"}),
            json!({"name": "Y", "value": "2"}),
        );
        for (case, object, patch, expected) in [
            (
                "containers and environment merge by name",
                json!({"containers": [{"name": "a", "image": "1", "env": [x]}]}),
                json!({"containers": [{"name": "a", "env": [y]}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "image": "1", "env": [x, y]}, {"name": "b"}]}),
            ),
            (
                "directives delete and replace",
                json!({"env": [x, y], "spec": {"a": 1, "b": 2}, "finalizers": ["f", "g"]}),
                json!({"env": [{"name": "X", "$patch": "delete"}],
                    "spec": {"$patch": "replace", "c": 3},
                    "$deleteFromPrimitiveList/finalizers": ["f"]}),
                json!({"env": [y], "spec": {"c": 3}, "finalizers": ["g"]}),
            ),
            (
                "unknown lists are replaced and nulls remove",
                json!({"args": ["a", "b"], "x": 1, "conditions": [{"type": "A", "status": "0"}]}),
                json!({"args": ["c"], "x": null, "conditions": [{"type": "A", "status": "1"}]}),
                json!({"args": ["c"], "conditions": [{"type": "A", "status": "1"}]}),
            ),
            (
                "ports merge by container port",
                json!({"ports": [{"containerPort": 80, "name": "a"}]}),
                json!({"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]}),
                json!({"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]}),
            ),
        ] {
            let mut merged = json!({ "spec": object });
            merge(&mut merged, &json!({ "spec": patch }));
            assert_eq!(merged, json!({ "spec": expected }), "{case}");
        }
    }
}
