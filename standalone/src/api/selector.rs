//! Label selectors such as `a=b,c!=d,e in (f, g),h notin (i),j,!k`, and field selectors such as
//! `metadata.name=x,status.phase!=Running`, of lists, watches and delete collections.

use serde_json::Value;

use super::error::ApiError;

#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Term>,
    fields: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    key: String,
    /// Accepted values; absent if the key only has to exist.
    values: Option<Vec<String>>,
    is_negated: bool,
}

impl Selector {
    pub(crate) fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        let text = labels.unwrap_or_default();
        let parts = split_outside_parentheses(text).map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        let labels: Option<_> = parts.map(label_term).collect();
        let invalid = format!("unable to parse requirement: {text:?} is not a label selector");
        let labels = labels.ok_or(ApiError::BadRequest(invalid))?;
        let text = fields.unwrap_or_default();
        let parts = text.split(',').filter(|part| !part.is_empty());
        let fields: Option<_> = parts.map(field_term).collect();
        let invalid = format!("invalid selector: '{text}'; can't understand '{text}'");
        let fields = fields.ok_or(ApiError::BadRequest(invalid))?;
        Ok(Self { labels, fields })
    }

    /// Rejects fields that the kind cannot be selected by.
    pub(crate) fn check_fields(&self, selectable: &[String]) -> Result<(), ApiError> {
        let mut paths = self.fields.iter().map(|term| &term.key);
        let is_known = |path: &String| {
            ["metadata.name", "metadata.namespace"].contains(&path.as_str())
                || selectable.contains(path)
        };
        match paths.find(|path| !is_known(path)) {
            None => Ok(()),
            Some(path) => Err(ApiError::BadRequest(format!(
                "field label not supported: {path}"
            ))),
        }
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.labels
            .iter()
            .all(|term| term.matches(label(&term.key)))
            && self
                .fields
                .iter()
                .all(|term| term.matches(Some(&field(object, &term.key))))
    }
}

impl Term {
    fn matches(&self, value: Option<&str>) -> bool {
        let is_match = value.is_some_and(|value| match &self.values {
            None => true,
            Some(accepted) => accepted.iter().any(|accepted| accepted == value),
        });
        is_match != self.is_negated
    }
}

/// Text of a field; an absent field counts as empty.
fn field(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |value, step| &value[step]) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth <= 0
    })
}

/// Parts of `key=value`, `key==value` or `key!=value`, and whether it is negated.
fn comparison(part: &str) -> Option<(&str, &str, bool)> {
    if let Some((key, value)) = part.split_once("!=") {
        return Some((key.trim(), value.trim(), true));
    }
    let (key, value) = part.split_once("==").or_else(|| part.split_once('='))?;
    Some((key.trim(), value.trim(), false))
}

fn label_term(part: &str) -> Option<Term> {
    let (key, values, is_negated) = if let Some((key, value, is_negated)) = comparison(part) {
        (key, Some(vec![value.to_owned()]), is_negated)
    } else if let Some(list) = part.strip_suffix(')') {
        let (head, values) = list.split_once('(')?;
        let (key, operator) = head.trim().rsplit_once(' ')?;
        let values = values.split(',').map(|value| value.trim().to_owned());
        let is_negated = operator == "notin";
        if !is_negated && operator != "in" {
            return None;
        }
        (key, Some(values.collect()), is_negated)
    } else {
        let key = part.strip_prefix('!');
        (key.unwrap_or(part), None, key.is_some())
    };
    let key = key.trim();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    (!key.is_empty() && key.chars().all(fits)).then(|| Term {
        key: key.to_owned(),
        values,
        is_negated,
    })
}

fn field_term(part: &str) -> Option<Term> {
    let (path, value, is_negated) = comparison(part)?;
    (!path.split('.').any(str::is_empty)).then(|| Term {
        key: path.to_owned(),
        values: Some(vec![value.to_owned()]),
        is_negated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_labels_and_fields() {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "web", "x.io/tier": "1"}},
            "status": {"phase": "Running"}});
        for (labels, fields, expected) in [
            ("", "", true),
            ("app", "", true),
            ("app=web", "", true),
            ("app==web", "", true),
            ("app!=db", "", true),
            ("nope!=1", "", true),
            ("!nope", "", true),
            ("app in (db, web),x.io/tier", "", true),
            ("app notin (db)", "", true),
            ("app=db", "", false),
            ("!app", "", false),
            ("nope", "", false),
            ("app notin (web,db)", "", false),
            ("app in (db)", "", false),
            ("app=web,x.io/tier=2", "", false),
            ("", "metadata.name=a,status.phase==Running", true),
            ("", "spec.nodeName=", true),
            ("", "status.phase!=Failed", true),
            ("", "metadata.name=b", false),
            ("app=web", "metadata.name=b", false),
        ] {
            let selector = Selector::parse(Some(labels), Some(fields)).unwrap();
            assert_eq!(selector.matches(&object), expected, "{labels} {fields}");
        }
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for bad in ["a b", "=x", "a among (b)", "in (x)", "a(b"] {
            assert!(Selector::parse(Some(bad), None).is_err(), "{bad}");
        }
        assert!(Selector::parse(None, Some("name")).is_err());
    }
}
