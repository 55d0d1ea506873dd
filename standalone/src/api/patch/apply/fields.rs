//! Sets of fields in the form of `FieldsV1`: `f:` a field, `k:` an item by its keys, `v:` a scalar of a set.

use serde_json::{Map, Value, json};

use super::{ListKind, Lists};

/// Identity is not owned by anybody.
const UNOWNED: [&[&str]; 7] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "creationTimestamp"],
];

/// The fields a configuration sets.
pub(super) fn owned<'a>(config: &'a Value, path: &mut Vec<&'a str>, lists: &Lists<'_>) -> Value {
    match config {
        Value::Object(fields) => owned_fields(fields, path, lists),
        Value::Array(items) => owned_items(items, path, lists),
        _ => json!({}),
    }
}

fn owned_fields<'a>(
    fields: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    lists: &Lists<'_>,
) -> Value {
    let mut set = Map::new();
    for (key, value) in fields {
        path.push(key);
        if !UNOWNED.contains(&path.as_slice()) {
            set.insert(format!("f:{key}"), owned(value, path, lists));
        }
        path.pop();
    }
    set.into()
}

fn owned_items<'a>(items: &'a [Value], path: &mut Vec<&'a str>, lists: &Lists<'_>) -> Value {
    let kind = lists.at(path, items);
    path.push("[]");
    let set: Map<_, _> = match &kind {
        ListKind::Atomic => Map::new(),
        ListKind::Set => items
            .iter()
            .map(|item| (format!("v:{item}"), json!({})))
            .collect(),
        ListKind::Map(keys) => items
            .iter()
            .map(|item| (item_key(item, keys), owned(item, path, lists)))
            .collect(),
    };
    path.pop();
    set.into()
}

fn item_key(item: &Value, keys: &[String]) -> String {
    let keys: Map<_, _> = keys
        .iter()
        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
        .collect();
    format!("k:{}", Value::from(keys))
}

/// Removes from `object` what is in `before` and neither in `now` nor in the sets of `others`. A plain parent goes only
/// when nothing is left in it: others may have written below it without applying.
pub(super) fn remove_dropped(object: &mut Value, before: &Value, now: &Value, others: &[Value]) {
    for (step, inner) in before.as_object().into_iter().flatten() {
        let others: Vec<_> = others
            .iter()
            .filter_map(|other| other.get(step))
            .cloned()
            .collect();
        let still = now.get(step);
        let parent =
            inner.as_object().is_some_and(|inner| !inner.is_empty()) && step.starts_with("f:");
        if still.is_none() && !parent && others.is_empty() {
            remove(object, step);
            continue;
        }
        let Some(child) = child(object, step) else {
            continue;
        };
        remove_dropped(child, inner, still.unwrap_or(&json!({})), &others);
        if still.is_none() && others.is_empty() && is_empty(child) {
            remove(object, step);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn child<'a>(object: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match step.split_once(':')? {
        ("f", field) => object.get_mut(field),
        ("k", keys) => {
            let keys: Value = serde_json::from_str(keys).ok()?;
            object
                .as_array_mut()?
                .iter_mut()
                .find(|item| has_keys(item, &keys))
        }
        _ => None,
    }
}

fn remove(object: &mut Value, step: &str) {
    match (step.split_once(':'), object) {
        (Some(("f", field)), Value::Object(fields)) => {
            fields.remove(field);
        }
        (Some((_, text)), Value::Array(items)) => {
            let Ok(wanted) = serde_json::from_str::<Value>(text) else {
                return;
            };
            items
                .retain(|item| *item != wanted && !(wanted.is_object() && has_keys(item, &wanted)));
        }
        _ => {}
    }
}

fn has_keys(item: &Value, keys: &Value) -> bool {
    keys.as_object().is_some_and(|keys| {
        !keys.is_empty() && keys.iter().all(|(key, value)| item.get(key) == Some(value))
    })
}
