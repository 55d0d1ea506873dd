//! JSON schemas of arguments in a form that every client and model understands: without references,
//! and an optional argument is one that may be absent, not one that may be null.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Annotations of generators that say nothing to a model.
const NOISE: [&str; 4] = ["$schema", "title", "format", "writeOnly"];

/// Schema of an arguments object.
pub(super) fn of<T: JsonSchema>() -> JsonObject {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    simplify(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.remove("description");
            schema
        }
        _ => JsonObject::new(),
    }
}

fn simplify(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for key in NOISE {
        map.remove(key);
    }
    map.retain(|key, value| key != "default" || !value.is_null());
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if let Some(Value::Array(types)) = map.get("type") {
        let mut types = types.iter().filter(|kind| *kind != "null");
        if let (Some(kind), None) = (types.next().cloned(), types.next()) {
            map.insert("type".into(), kind);
        }
    }
    if let Some(Value::Array(choices)) = map.remove("anyOf") {
        let choice = choices.into_iter().find(|choice| choice["type"] != "null");
        if let Some(Value::Object(choice)) = choice {
            map.extend(choice);
        }
    }
    for key in ["oneOf", "properties"] {
        match map.get_mut(key) {
            Some(Value::Array(schemas)) => schemas.iter_mut().for_each(simplify),
            Some(Value::Object(schemas)) => schemas.values_mut().for_each(simplify),
            _ => {}
        }
    }
}
