//! Value checks of a structural schema. Messages follow the real server, because users search for
//! them.

mod combine;
mod format;
mod list;

use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::join_path;
use crate::api::error::{Cause, CauseReason};

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
        if value.is_null() && schema["nullable"] == true {
            return;
        }
        if !self.type_fits(schema, value, path) {
            return;
        }
        self.one_of_enum(schema, value, path);
        match value {
            Value::String(text) => self.string(schema, text, path),
            Value::Number(number) => self.number(schema, number, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(schema, value, path);
    }

    fn type_fits(&mut self, schema: &Value, value: &Value, path: &str) -> bool {
        if schema["x-kubernetes-int-or-string"] == true {
            return self.type_is(
                value.is_i64() || value.is_u64() || value.is_string(),
                "integer,string",
                value,
                path,
            );
        }
        let fits = |expected: &str| match expected {
            "integer" => is_integer(value),
            "number" => value.is_number(),
            expected => type_name(value) == expected,
        };
        let Some(expected) = schema["type"].as_str() else {
            return !value.is_null() || schema["nullable"] == true;
        };
        self.type_is(fits(expected), expected, value, path)
    }

    fn type_is(&mut self, fits: bool, expected: &str, value: &Value, path: &str) -> bool {
        if !fits {
            let found = type_name(value);
            let message = format!(
                "Invalid value: \"{found}\": {path} in body must be of type {expected}: \"{found}\""
            );
            self.causes
                .push(Cause::new(CauseReason::TypeInvalid, path, message));
        }
        fits
    }

    fn one_of_enum(&mut self, schema: &Value, value: &Value, path: &str) {
        let Some(allowed) = schema["enum"]
            .as_array()
            .filter(|allowed| !allowed.contains(value))
        else {
            return;
        };
        let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        );
        self.causes
            .push(Cause::new(CauseReason::NotSupported, path, message));
    }

    fn string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(max) = schema["maxLength"].as_u64().filter(|&max| length > max) {
            self.causes.push(Cause::new(
                CauseReason::TooLong,
                path,
                format!("Too long: may not be more than {max} bytes"),
            ));
        }
        if let Some(min) = schema["minLength"].as_u64().filter(|&min| length < min) {
            self.invalid(text, path, &format!("should be at least {min} chars long"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && self
                .patterns
                .get(pattern)
                .is_some_and(|regex| !regex.is_match(text))
        {
            self.invalid(text, path, &format!("should match '{pattern}'"));
        }
        if let Some(format) = schema["format"]
            .as_str()
            .filter(|format| !format::fits(format, text))
        {
            self.invalid(text, path, &format!("must be of type {format}: {text:?}"));
        }
    }

    fn number(&mut self, schema: &Value, number: &Number, path: &str) {
        let Some(value) = number.as_f64() else { return };
        let exclusive = |field: &str| schema[field] == true;
        if let Some(min) = schema["minimum"].as_f64() {
            let (broken, comparison) = if exclusive("exclusiveMinimum") {
                (value <= min, "than")
            } else {
                (value < min, "than or equal to")
            };
            self.bound(
                broken,
                number,
                path,
                &format!("should be greater {comparison} {min}"),
            );
        }
        if let Some(max) = schema["maximum"].as_f64() {
            let (broken, comparison) = if exclusive("exclusiveMaximum") {
                (value >= max, "than")
            } else {
                (value > max, "than or equal to")
            };
            self.bound(
                broken,
                number,
                path,
                &format!("should be less {comparison} {max}"),
            );
        }
        if let Some(unit) = schema["multipleOf"].as_f64() {
            self.bound(
                value % unit != 0.0,
                number,
                path,
                &format!("should be a multiple of {unit}"),
            );
        }
        if schema["format"] == "int32" {
            self.bound(
                number
                    .as_i64()
                    .is_some_and(|value| i32::try_from(value).is_err()),
                number,
                path,
                "must be of type int32",
            );
        }
    }

    fn bound(&mut self, broken: bool, number: &Number, path: &str, message: &str) {
        if broken {
            self.invalid(number.clone(), path, message);
        }
    }

    fn object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        for required in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !fields.contains_key(required) {
                self.causes.push(Cause::new(
                    CauseReason::Required,
                    join_path(path, required),
                    "Required value",
                ));
            }
        }
        self.count(schema, "Properties", fields.len(), path);
        for (key, value) in fields {
            let known = schema["properties"]
                .get(key)
                .or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()));
            if let Some(known) = known {
                self.value(known, value, &join_path(path, key));
            }
        }
    }

    /// `minItems`, `maxItems`, `minProperties`, `maxProperties`.
    fn count(&mut self, schema: &Value, what: &str, count: usize, path: &str) {
        let (count, unit) = (count as u64, what.to_lowercase());
        if let Some(max) = schema[format!("max{what}")]
            .as_u64()
            .filter(|&max| count > max)
        {
            self.causes.push(Cause::new(
                CauseReason::TooMany,
                path,
                format!("Too many: {count}: must have at most {max} {unit}"),
            ));
        }
        if let Some(min) = schema[format!("min{what}")]
            .as_u64()
            .filter(|&min| count < min)
        {
            self.invalid(count, path, &format!("should have at least {min} {unit}"));
        }
    }

    fn invalid(&mut self, value: impl Into<Value>, path: &str, message: &str) {
        self.causes.push(Cause::invalid(
            path,
            &value.into(),
            &format!("{path} in body {message}"),
        ));
    }
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

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}
