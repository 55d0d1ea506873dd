//! Structural defaulting: missing fields take the default of the schema, at every level that exists after the level
//! above was defaulted.

use serde_json::Value;

pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                let Some(default) = property.get("default") else {
                    continue;
                };
                let replace_null =
                    fields.get(key).is_some_and(Value::is_null) && property["nullable"] != true;
                if replace_null || !fields.contains_key(key) {
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
