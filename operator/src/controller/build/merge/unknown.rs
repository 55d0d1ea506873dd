//! Fields that Kubernetes does not have. Typed objects forget them in silence, so a slip of the pen
//! in a template would do nothing; the API server would at least warn.

use serde_json::Value;

/// The path of the first field of `given` that is missing in `known`, which is `given` after the
/// journey through its type. Begins with a dot.
pub(super) fn first(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            given.iter().find_map(|(name, value)| {
                let place = format!(".{name}");
                match known.get(name) {
                    Some(known) => Some(place + &first(value, known)?),
                    // Empty values may be left out.
                    None => (!is_empty(value)).then_some(place),
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
