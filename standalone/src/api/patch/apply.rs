//! Server-side apply in its simple form: the applied configuration is merged over the object, and what the same manager
//! applied before and no longer does is removed. Only appliers own fields, and there are no conflicts: the last applier
//! wins, as with `--force-conflicts`.

mod fields;

use serde_json::{Map, Value, json};

use self::fields::{owned, remove_dropped};
use super::lists::{self, ListKind};
use crate::api::{
    object::{as_object, set_meta},
    registry::Kind,
};

/// Merges the configuration `manager` applies into the object.
pub(super) fn merge(object: &mut Value, config: &Value, kind: &Kind, manager: &str) {
    let mut config = config.clone();
    set_meta(&mut config, "managedFields", Value::Null);
    let lists = Lists(kind);
    let (mine, others) = managers(object, manager);
    let now = owned(&config, &mut Vec::new(), &lists);
    merge_value(object, &config, &mut Vec::new(), &lists);
    if let Some(before) = mine {
        remove_dropped(object, &before, &now, &others);
    }
    record(object, kind, manager, &now);
}

/// What this manager owned so far, and what each other one owns.
fn managers(object: &Value, manager: &str) -> (Option<Value>, Vec<Value>) {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let (mine, others): (Vec<_>, Vec<_>) = entries
        .iter()
        .partition(|entry| entry["manager"] == manager);
    let fields = |entry: &&Value| entry["fieldsV1"].clone();
    (
        mine.first().map(fields),
        others.iter().map(fields).collect(),
    )
}

fn record(object: &mut Value, kind: &Kind, manager: &str, fields: &Value) {
    let mut entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let entry = json!({"manager": manager, "operation": "Apply", "apiVersion": kind.api_version(),
        "fieldsType": "FieldsV1", "fieldsV1": fields});
    match entries.iter_mut().find(|entry| entry["manager"] == manager) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
    set_meta(object, "managedFields", entries);
}

/// Knows how each list of a kind merges.
pub(super) struct Lists<'a>(&'a Kind);

impl Lists<'_> {
    fn at(&self, path: &[&str], items: &[Value]) -> ListKind {
        let field = path.last().copied().unwrap_or_default();
        match self.0.schema() {
            Some(schema) if path.first() != Some(&"metadata") => {
                schema.field(path).map_or(ListKind::Atomic, lists::declared)
            }
            _ => lists::builtin(field, items.first()),
        }
    }
}

fn merge_value<'a>(
    target: &mut Value,
    config: &'a Value,
    path: &mut Vec<&'a str>,
    lists: &Lists<'_>,
) {
    match config {
        Value::Object(fields) => merge_fields(as_object(target), fields, path, lists),
        Value::Array(items) => merge_list(target, items, path, lists),
        scalar => *target = scalar.clone(),
    }
}

fn merge_fields<'a>(
    target: &mut Map<String, Value>,
    fields: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    lists: &Lists<'_>,
) {
    for (key, value) in fields {
        path.push(key);
        merge_value(target.entry(key).or_insert(Value::Null), value, path, lists);
        path.pop();
    }
}

fn merge_list<'a>(
    target: &mut Value,
    items: &'a [Value],
    path: &mut Vec<&'a str>,
    lists: &Lists<'_>,
) {
    let kind = lists.at(path, items);
    let (Value::Array(current), false) = (&mut *target, kind == ListKind::Atomic) else {
        *target = items.iter().cloned().collect();
        return;
    };
    path.push("[]");
    for item in items {
        let known = match &kind {
            ListKind::Map(keys) => current
                .iter_mut()
                .find(|existing| lists::same(existing, item, keys)),
            _ => current.iter_mut().find(|existing| *existing == item),
        };
        match known {
            Some(known) => merge_value(known, item, path, lists),
            None => current.push(item.clone()),
        }
    }
    path.pop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::registry::Registry;

    fn apply(object: &mut Value, manager: &str, config: &Value) {
        let registry = Registry::new(&[]);
        merge(
            object,
            config,
            registry.find("", "v1", "pods").unwrap(),
            manager,
        );
    }

    #[test]
    fn dropped_fields_and_items_go() {
        let mut pod = json!({});
        apply(
            &mut pod,
            "a",
            &json!({"spec": {"nodeName": "n", "containers": [{"name": "x", "image": "1"}, {"name": "y"}]}}),
        );
        apply(
            &mut pod,
            "b",
            &json!({"spec": {"containers": [{"name": "x", "tty": true}]}}),
        );
        apply(
            &mut pod,
            "a",
            &json!({"spec": {"containers": [{"name": "x"}]}}),
        );
        assert_eq!(
            pod["spec"],
            json!({"containers": [{"name": "x", "tty": true}]})
        );
    }

    #[test]
    fn what_another_manager_applies_stays() {
        let mut pod = json!({});
        apply(
            &mut pod,
            "a",
            &json!({"metadata": {"labels": {"k": "v", "l": "v"}}}),
        );
        apply(&mut pod, "b", &json!({"metadata": {"labels": {"k": "v"}}}));
        apply(&mut pod, "a", &json!({"metadata": {}}));
        assert_eq!(pod["metadata"]["labels"], json!({"k": "v"}));
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let mut pod = json!({});
        let config = json!({"metadata": {"finalizers": ["f"]}, "spec": {"containers": [{"name": "x", "args": ["1"]}]}});
        apply(&mut pod, "a", &config);
        let before = pod.clone();
        apply(&mut pod, "a", &config);
        assert_eq!(pod, before);
    }
}
