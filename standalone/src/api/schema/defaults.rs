//! Structural defaulting at every level that exists. A null in a field that is not nullable counts
//! as missing.

use serde_json::Value;

pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !value.is_null() || !is_no_null(schema, key));
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                let Some(default) = property.get("default") else {
                    continue;
                };
                if !fields.contains_key(key) {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, child) in fields.iter_mut() {
                let known = schema["properties"]
                    .get(key)
                    .or_else(|| schema.get("additionalProperties"));
                if let Some(known) = known {
                    fill(known, child);
                }
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

/// True if the schema has this field and it is not nullable.
fn is_no_null(schema: &Value, key: &str) -> bool {
    let known = schema["properties"]
        .get(key)
        .or_else(|| schema.get("additionalProperties"));
    known.is_some_and(|field| field.is_object() && field["nullable"] != true)
}
