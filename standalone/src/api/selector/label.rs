//! Label selectors such as `a=b,c!=d,e in (f, g),h notin (i),j,!k`.

use serde_json::Value;

use crate::api::error::ApiError;

#[derive(Clone, Debug, Default)]
pub(super) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl LabelSelector {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let parts = split_outside_parentheses(text);
        let parts = parts
            .iter()
            .map(|part| part.trim())
            .filter(|part| !part.is_empty());
        parts
            .map(requirement)
            .collect::<Option<_>>()
            .map(Self)
            .ok_or_else(|| {
                ApiError::BadRequest(format!(
                    "unable to parse requirement: {text:?} is not a label selector"
                ))
            })
    }

    pub(super) fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let value = |key: &String| labels.get(key).and_then(Value::as_str);
            let among = |key, values: &[String]| {
                value(key).is_some_and(|value| values.iter().any(|v| v == value))
            };
            match requirement {
                Requirement::Exists(key) => value(key).is_some(),
                Requirement::Absent(key) => value(key).is_none(),
                Requirement::In(key, values) => among(key, values),
                Requirement::NotIn(key, values) => !among(key, values),
            }
        })
    }
}

/// Splits at commas outside of parentheses.
fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth <= 0
    })
    .collect()
}

fn requirement(part: &str) -> Option<Requirement> {
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(label_key(key)?, one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(label_key(key)?, one(value)));
    }
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, operator) = head.trim().rsplit_once(' ')?;
        return match operator {
            "in" => Some(Requirement::In(label_key(key)?, values)),
            "notin" => Some(Requirement::NotIn(label_key(key)?, values)),
            _ => None,
        };
    }
    match part.strip_prefix('!') {
        Some(key) => Some(Requirement::Absent(label_key(key)?)),
        None => Some(Requirement::Exists(label_key(part)?)),
    }
}

fn label_key(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    (!text.is_empty() && text.chars().all(fits)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str) -> bool {
        LabelSelector::parse(selector)
            .unwrap()
            .matches(&json!({"app": "web", "x.io/tier": "1"}))
    }

    #[test]
    fn label_selector_matches_equality_and_sets() {
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "nope!=1",
            "!nope",
            "app in (db, web),x.io/tier",
            "app notin (db)",
        ] {
            assert!(matches(yes), "{yes}");
        }
        for no in [
            "app=db",
            "!app",
            "nope",
            "app notin (web,db)",
            "app in (db)",
            "app=web,x.io/tier=2",
        ] {
            assert!(!matches(no), "{no}");
        }
    }

    #[test]
    fn malformed_input_is_rejected() {
        for bad in ["a b", "=x", "a among (b)", "in (x)", "a(b"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
