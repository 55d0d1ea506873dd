//! Python literals of JSON values, which is the form of values in the tree text.

use std::fmt::Write as _;

use serde_json::Value;

use crate::python_repr::quoted;

/// Smallest number that gets an exponent, as in JSON written by JavaScript.
const MIN_EXPONENT_NUMBER: f64 = 1e21;
/// Smallest fraction that gets none.
const MIN_PLAIN_FRACTION: f64 = 1e-4;

pub(super) fn push(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => push_string(text, string),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Null => text.push_str("None"),
        Value::Number(number) => push_number(text, number.as_f64().unwrap_or_default()),
        // Chromium has no such values. Their JSON is close enough.
        Value::Array(_) | Value::Object(_) => text.push_str(&value.to_string()),
    }
}

/// Truth as Python has it.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(string) => !string.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Trims what Python takes for white space: four control characters more than Unicode does.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// Numbers of JavaScript: whole ones are integers.
fn push_number(text: &mut String, number: f64) {
    // Writing into a string cannot fail.
    let _ = if number.abs() >= MIN_EXPONENT_NUMBER {
        let shown = format!("{number:e}");
        write!(text, "{}", shown.replace('e', "e+"))
    } else if number.fract() == 0.0 || number.abs() >= MIN_PLAIN_FRACTION {
        // Adding 0 turns -0 into 0.
        write!(text, "{}", number + 0.0)
    } else {
        let shown = format!("{number:e}");
        let (digits, exponent) = shown.split_once("e-").unwrap_or((&shown, "0"));
        write!(text, "{digits}e-{exponent:0>2}")
    };
}

pub(super) fn push_string(text: &mut String, string: &str) {
    text.push_str(&quoted(string));
}
