//! Fields that Kubernetes does not have. Typed objects drop them silently, so a misspelled field in
//! a template would have no effect and no error.

use serde_json::Value;

/// Path of the first field of `given` that is missing in `known`, which is `given` after
/// deserializing and serializing it. Begins with a dot.
pub(super) fn first(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            given.iter().find_map(|(name, value)| {
                let path = format!(".{name}");
                match known.get(name) {
                    Some(known) => Some(path + &first(value, known)?),
                    // Empty values may be left out.
                    None => (!is_empty(value)).then_some(path),
                }
            })
        }
        (Value::Array(given), Value::Array(known)) => {
            let mut pairs = given.iter().zip(known).enumerate();
            pairs.find_map(|(at, (given, known))| Some(format!("[{at}]{}", first(given, known)?)))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
