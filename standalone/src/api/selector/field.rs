//! Field selectors such as `metadata.name=x,status.phase!=Running`. An absent field counts as
//! empty.

use serde_json::Value;

use crate::api::error::ApiError;

#[derive(Clone, Debug, Default)]
pub(super) struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug)]
struct Term {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl FieldSelector {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts
            .map(term)
            .collect::<Option<_>>()
            .map(Self)
            .ok_or_else(|| {
                ApiError::BadRequest(format!(
                    "invalid selector: '{text}'; can't understand '{text}'"
                ))
            })
    }

    pub(super) fn check(&self, selectable: &[String]) -> Result<(), ApiError> {
        let fields = self.0.iter().map(|term| term.path.join("."));
        match fields.into_iter().find(|field| !selectable.contains(field)) {
            None => Ok(()),
            Some(field) => Err(ApiError::BadRequest(format!(
                "field label not supported: {field}"
            ))),
        }
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|term| (read(object, &term.path) == term.value) == term.equal)
    }
}

fn term(part: &str) -> Option<Term> {
    let (path, value, equal) = match part.split_once("!=") {
        Some((path, value)) => (path, value, false),
        None => part
            .split_once("==")
            .or_else(|| part.split_once('='))
            .map(|(path, value)| (path, value, true))?,
    };
    let path: Vec<_> = path.trim().split('.').map(str::to_owned).collect();
    (!path.iter().any(String::is_empty)).then(|| Term {
        path,
        value: value.trim().to_owned(),
        equal,
    })
}

fn read(object: &Value, path: &[String]) -> String {
    match path
        .iter()
        .fold(object, |value, step| &value[step.as_str()])
    {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn field_selector_compares_paths() {
        let object = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
        let matches = |text: &str| FieldSelector::parse(text).unwrap().matches(&object);
        assert!(matches("metadata.name=a,status.phase==Running"));
        assert!(matches("spec.nodeName="));
        assert!(matches("status.phase!=Failed"));
        assert!(!matches("metadata.name=b"));
        assert!(FieldSelector::parse("name").is_err());
    }
}
