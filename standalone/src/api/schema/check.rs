//! Value checks of a structural schema. Messages follow the real server, because users search for
//! them.

use std::collections::{HashMap, HashSet};

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::{child, join_path};
use crate::api::{
    error::{Cause, CauseReason},
    object::items,
};

pub(super) fn check(
    schema: &Value,
    patterns: &HashMap<String, Regex>,
    object: &Value,
) -> Vec<Cause> {
    let mut checker = Checker {
        patterns,
        causes: Vec::new(),
    };
    checker.value(schema, object, "");
    checker.causes
}

struct Checker<'a> {
    patterns: &'a HashMap<String, Regex>,
    causes: Vec<Cause>,
}

impl Checker<'_> {
    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        if !self.type_fits(schema, value, path) {
            return;
        }
        if schema["enum"].is_array() && !items(&schema["enum"]).contains(value) {
            let allowed: Vec<_> = items(&schema["enum"])
                .iter()
                .map(Value::to_string)
                .collect();
            let allowed = allowed.join(", ");
            let message = format!("Unsupported value: {value}: supported values: {allowed}");
            self.add(CauseReason::FieldValueNotSupported, path, message);
        }
        match value {
            Value::String(text) => self.string(schema, text, path),
            Value::Number(number) => self.number(schema, number, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn type_fits(&mut self, schema: &Value, value: &Value, path: &str) -> bool {
        let is_whole = value.is_i64() || value.is_u64();
        let (fits, expected) = if schema["x-kubernetes-int-or-string"] == true {
            (is_whole || value.is_string(), "integer,string")
        } else {
            let expected = schema["type"].as_str();
            let fits = match expected {
                None => return !value.is_null(),
                Some("integer") => is_whole || value.as_f64().is_some_and(|n| n.fract() == 0.0),
                Some("number") => value.is_number(),
                Some(expected) => type_name(value) == expected,
            };
            (fits, expected.unwrap_or_default())
        };
        if !fits {
            let found = type_name(value);
            let message = format!(
                "Invalid value: \"{found}\": {path} in body must be of type {expected}: \"{found}\""
            );
            self.add(CauseReason::FieldValueTypeInvalid, path, message);
        }
        fits
    }

    fn string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(max) = schema["maxLength"].as_u64().filter(|&max| length > max) {
            let message = format!("Too long: may not be more than {max} bytes");
            self.add(CauseReason::FieldValueTooLong, path, message);
        }
        if let Some(min) = schema["minLength"].as_u64().filter(|&min| length < min) {
            self.invalid(text, path, &format!("should be at least {min} chars long"));
        }
        let pattern = schema["pattern"].as_str().unwrap_or_default();
        let regex = self.patterns.get(pattern);
        if regex.is_some_and(|regex| !regex.is_match(text)) {
            self.invalid(text, path, &format!("should match '{pattern}'"));
        }
        if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            self.invalid(text, path, &format!("must be of type date-time: {text:?}"));
        }
    }

    fn number(&mut self, schema: &Value, number: &Number, path: &str) {
        let Some(value) = number.as_f64() else { return };
        if let Some(min) = schema["minimum"].as_f64().filter(|&min| value < min) {
            let message = format!("should be greater than or equal to {min}");
            self.invalid(number.clone(), path, &message);
        }
        if let Some(max) = schema["maximum"].as_f64().filter(|&max| value > max) {
            let message = format!("should be less than or equal to {max}");
            self.invalid(number.clone(), path, &message);
        }
    }

    fn list(&mut self, schema: &Value, list: &[Value], path: &str) {
        self.count(schema, "Items", list.len(), path);
        for (index, item) in list.iter().enumerate() {
            self.value(&schema["items"], item, &format!("{path}[{index}]"));
        }
        if schema["x-kubernetes-list-type"] == "map" {
            let mut seen = HashSet::new();
            for (index, item) in list.iter().enumerate() {
                let identity = identity(schema, item).to_string();
                if !seen.insert(identity.clone()) {
                    self.causes
                        .push(Cause::duplicate(format!("{path}[{index}]"), &identity));
                }
            }
        }
    }

    fn object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        for required in items(&schema["required"]).iter().filter_map(Value::as_str) {
            if !fields.contains_key(required) {
                self.causes.push(Cause::required(join_path(path, required)));
            }
        }
        self.count(schema, "Properties", fields.len(), path);
        for (key, value) in fields {
            if let Some(known) = child(schema, key) {
                self.value(known, value, &join_path(path, key));
            }
        }
    }

    /// `minItems`, `maxItems` and `maxProperties`.
    fn count(&mut self, schema: &Value, what: &str, count: usize, path: &str) {
        let (count, unit) = (count as u64, what.to_lowercase());
        let limit = |bound: &str| schema[format!("{bound}{what}")].as_u64();
        if let Some(max) = limit("max").filter(|&max| count > max) {
            let message = format!("Too many: {count}: must have at most {max} {unit}");
            self.add(CauseReason::FieldValueTooMany, path, message);
        }
        if let Some(min) = limit("min").filter(|&min| count < min) {
            self.invalid(count, path, &format!("should have at least {min} {unit}"));
        }
    }

    fn add(&mut self, reason: CauseReason, path: &str, message: String) {
        self.causes.push(Cause::new(reason, path, message));
    }

    fn invalid(&mut self, value: impl Into<Value>, path: &str, message: &str) {
        let message = format!("{path} in body {message}");
        self.causes.push(Cause::invalid(path, value, &message));
    }
}

/// Key fields of a list item; an absent key counts as its default.
fn identity(schema: &Value, item: &Value) -> Value {
    let keys = items(&schema["x-kubernetes-list-map-keys"])
        .iter()
        .filter_map(Value::as_str);
    let fields = keys.map(|key| {
        let default = &schema["items"]["properties"][key]["default"];
        (key.to_owned(), item.get(key).unwrap_or(default).clone())
    });
    fields.collect::<Map<_, _>>().into()
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
