//! Checks of lists: length, items, and uniqueness by `x-kubernetes-list-type`.

use std::collections::HashSet;

use serde_json::Value;

use super::Checker;
use crate::api::error::{Cause, CauseReason};

impl Checker<'_> {
    pub(super) fn list(&mut self, schema: &Value, items: &[Value], path: &str) {
        self.count(schema, "Items", items.len(), path);
        for (index, item) in items.iter().enumerate() {
            self.value(&schema["items"], item, &format!("{path}[{index}]"));
        }
        match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => self.unique(items, path, |item| identity(schema, item)),
            Some("set") => self.unique(items, path, Value::clone),
            _ => {}
        }
    }

    fn unique(&mut self, items: &[Value], path: &str, identity: impl Fn(&Value) -> Value) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = identity(item).to_string();
            if seen.contains(&identity) {
                let message = format!("Duplicate value: {identity}");
                self.causes.push(Cause::new(
                    CauseReason::Duplicate,
                    format!("{path}[{index}]"),
                    message,
                ));
            }
            seen.insert(identity);
        }
    }
}

/// Key fields of a list item; an absent key counts as its default.
fn identity(schema: &Value, item: &Value) -> Value {
    let keys = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let of = |key: &str| {
        item.get(key)
            .unwrap_or(&schema["items"]["properties"][key]["default"])
            .clone()
    };
    keys.map(|key| (key.to_owned(), of(key)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
