//! Field sets in the format `FieldsV1`: `f:` a field, `k:` an item by its keys, `v:` a scalar of a
//! set.

use serde_json::{Map, Value, json};

use super::{ListKind, ListKinds};
use crate::api::object::as_object;

/// Identity fields have no owner.
const UNOWNED: [&[&str]; 7] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "creationTimestamp"],
];

/// Returns the field set of a configuration.
pub(super) fn owned<'a>(
    config: &'a Value,
    path: &mut Vec<&'a str>,
    lists: &ListKinds<'_>,
) -> Value {
    match config {
        Value::Object(fields) => owned_fields(fields, path, lists),
        Value::Array(items) => owned_items(items, path, lists),
        _ => json!({}),
    }
}

fn owned_fields<'a>(
    fields: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    lists: &ListKinds<'_>,
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

fn owned_items<'a>(items: &'a [Value], path: &mut Vec<&'a str>, lists: &ListKinds<'_>) -> Value {
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

/// Removes the fields of `before` that neither `now` nor `others` contain. A parent is removed only
/// when it is empty: writers without apply may have set fields below it.
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

/// Paths of the fields without further fields below them.
pub(super) fn leaves(fields: &Value) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (step, below) in fields.as_object().into_iter().flatten() {
        let below = leaves(below);
        if below.is_empty() {
            paths.push(vec![step.clone()]);
        }
        paths.extend(
            below
                .into_iter()
                .map(|path| [vec![step.clone()], path].concat()),
        );
    }
    paths
}

/// The value at a path of field steps.
pub(super) fn resolve<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, step| match step.split_once(':')? {
            ("f", field) => value.get(field),
            (kind, text) => {
                let wanted: Value = serde_json::from_str(text).ok()?;
                let is_wanted = |item: &&Value| match kind {
                    "k" => has_keys(item, &wanted),
                    _ => **item == wanted,
                };
                value.as_array()?.iter().find(is_wanted)
            }
        })
}

/// Removes a path from a field set, with parents that become empty. True if it was there.
pub(super) fn take(fields: &mut Value, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else {
        return true;
    };
    let Some(below) = fields.get_mut(step) else {
        return false;
    };
    let is_taken = take(below, rest);
    if is_taken && is_empty(below) {
        as_object(fields).remove(step);
    }
    is_taken
}

/// A path in the notation of the server, such as `.spec.containers[name="x"].image`.
pub(super) fn display(path: &[String]) -> String {
    let step = |step: &String| match step.split_once(':') {
        Some(("f", field)) => format!(".{field}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, text)) => format!("[={text}]"),
        None => step.clone(),
    };
    path.iter().map(step).collect()
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
