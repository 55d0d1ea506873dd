//! Server-side apply: merges the applied configuration and removes what the same manager no longer
//! applies. Fields of another applier conflict unless the client forces the apply. Writers without
//! apply own no fields.

mod managed_fields;

use serde_json::{Map, Value, json};

use self::managed_fields::{display, leaves, owned, remove_dropped, resolve, take};
use super::{
    Applier,
    list_merge::{self, ListKind},
};
use crate::api::{
    error::{ApiError, Cause, CauseReason},
    object::{as_object, set_meta},
    registry::Kind,
};

/// Merges the configuration into the object.
pub(super) fn merge(
    object: &mut Value,
    config: &Value,
    kind: &Kind,
    applier: &Applier,
) -> Result<(), ApiError> {
    let mut config = config.clone();
    set_meta(&mut config, "managedFields", Value::Null);
    let lists = ListKinds(kind);
    let (mine, mut others) = managers(object, &applier.manager);
    let now = owned(&config, &mut Vec::new(), &lists);
    let conflicts = take_conflicts(object, &config, &now, &mut others);
    if !conflicts.is_empty() && !applier.force {
        return Err(ApiError::ApplyConflict(conflicts));
    }
    merge_value(object, &config, &mut Vec::new(), &lists);
    if let Some(before) = mine {
        let others: Vec<_> = others
            .iter()
            .map(|entry| entry["fieldsV1"].clone())
            .collect();
        remove_dropped(object, &before, &now, &others);
    }
    others.retain(|entry| entry["fieldsV1"] != json!({}));
    others.push(json!({
        "manager": applier.manager, "operation": "Apply", "apiVersion": kind.api_version(),
        "fieldsType": "FieldsV1", "fieldsV1": now,
    }));
    others.sort_by_cached_key(|entry| entry["manager"].to_string());
    set_meta(object, "managedFields", others);
    Ok(())
}

/// Fields owned by this manager, and the entries of the other managers.
fn managers(object: &Value, manager: &str) -> (Option<Value>, Vec<Value>) {
    let entries = object["metadata"]["managedFields"].as_array();
    let (mine, others): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .flatten()
        .cloned()
        .partition(|entry| entry["manager"] == manager);
    (mine.first().map(|entry| entry["fieldsV1"].clone()), others)
}

/// Removes the fields that the configuration changes from the sets of other managers.
fn take_conflicts(
    object: &Value,
    config: &Value,
    fields: &Value,
    others: &mut [Value],
) -> Vec<Cause> {
    let mut conflicts = Vec::new();
    for path in leaves(fields) {
        let applied = resolve(config, &path);
        // An empty object sets nothing.
        if applied.is_some_and(Value::is_object) || resolve(object, &path) == applied {
            continue;
        }
        for other in &mut *others {
            if take(&mut other["fieldsV1"], &path) {
                let manager = other["manager"].as_str().unwrap_or_default();
                let version = other["apiVersion"].as_str().unwrap_or_default();
                conflicts.push(Cause::new(
                    CauseReason::FieldManagerConflict,
                    display(&path),
                    format!("conflict with \"{manager}\" using {version}"),
                ));
            }
        }
    }
    conflicts
}

pub(super) struct ListKinds<'a>(&'a Kind);

impl ListKinds<'_> {
    fn at(&self, path: &[&str], items: &[Value]) -> ListKind {
        let field = path.last().copied().unwrap_or_default();
        match self.0.schema() {
            Some(schema) if path.first() != Some(&"metadata") => schema
                .field(path)
                .map_or(ListKind::Atomic, list_merge::declared),
            _ => list_merge::builtin(field, items.first()),
        }
    }
}

fn merge_value<'a>(
    target: &mut Value,
    config: &'a Value,
    path: &mut Vec<&'a str>,
    lists: &ListKinds<'_>,
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
    lists: &ListKinds<'_>,
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
    lists: &ListKinds<'_>,
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
                .find(|existing| list_merge::same(existing, item, keys)),
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

    fn try_apply(
        pod: &mut Value,
        manager: &str,
        config: &Value,
        force: bool,
    ) -> Result<(), ApiError> {
        let registry = Registry::new(&[]);
        let pods = registry.find("", "v1", "pods").unwrap();
        let manager = manager.to_owned();
        merge(pod, config, pods, &Applier { manager, force })
    }

    fn apply(pod: &mut Value, manager: &str, config: &Value) {
        try_apply(pod, manager, config, false).unwrap();
    }

    fn containers(containers: &Value) -> Value {
        json!({"spec": {"containers": containers}})
    }

    #[test]
    fn conflict_names_field_and_manager_and_force_takes_it_over() {
        let mut pod = json!({});
        let labels = json!({"labels": {"l": "1"}});
        let config = |image: &str| {
            let mut config = containers(&json!([{"name": "x", "image": image}]));
            config["metadata"] = labels.clone();
            config
        };
        apply(&mut pod, "a", &config("1"));
        let before = pod.clone();
        apply(&mut pod, "b", &json!({ "metadata": labels }));
        let error = try_apply(&mut pod, "b", &config("2"), false).unwrap_err();
        let path = r#".spec.containers[name="x"].image"#;
        let text = format!("Apply failed with 1 conflict: conflict with \"a\" using v1: {path}");
        assert_eq!(error.to_string(), text);
        assert_eq!(pod["spec"], before["spec"]);
        let cause = &error.to_status()["details"]["causes"][0];
        assert_eq!(cause["reason"], "FieldManagerConflict");
        assert_eq!(cause["field"], path);

        try_apply(&mut pod, "b", &config("2"), true).unwrap();
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
        assert_eq!(image(&pod), "2");
        let refused = try_apply(&mut pod, "a", &config("3"), false);
        assert!(refused.is_err(), "b owns it now");
        apply(&mut pod, "a", &json!({}));
        assert_eq!(image(&pod), "2");
    }

    #[test]
    fn apply_removes_dropped_fields_and_items() {
        let mut pod = json!({});
        let mut first = containers(&json!([{"name": "x", "image": "1"}, {"name": "y"}]));
        first["spec"]["nodeName"] = json!("n");
        apply(&mut pod, "a", &first);
        let other = containers(&json!([{"name": "x", "tty": true}]));
        apply(&mut pod, "b", &other);
        apply(&mut pod, "a", &containers(&json!([{"name": "x"}])));
        assert_eq!(pod["spec"], other["spec"]);
    }

    #[test]
    fn apply_keeps_fields_of_other_manager() {
        let mut pod = json!({});
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        apply(&mut pod, "a", &labels(json!({"k": "v", "l": "v"})));
        apply(&mut pod, "b", &labels(json!({"k": "v"})));
        apply(&mut pod, "a", &json!({"metadata": {}}));
        assert_eq!(pod["metadata"]["labels"], json!({"k": "v"}));
    }

    #[test]
    fn apply_is_idempotent() {
        let mut pod = json!({});
        let mut config = containers(&json!([{"name": "x", "args": ["1"]}]));
        config["metadata"] = json!({"finalizers": ["f"]});
        apply(&mut pod, "a", &config);
        let before = pod.clone();
        apply(&mut pod, "a", &config);
        assert_eq!(pod, before);
    }
}
