//! Schema of a custom resource: pruning, defaults, value checks and CEL rules, as on a real server.

mod cel_rules;
mod check;
mod defaults;
mod prune;

use std::collections::HashMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceValidation;
use regex::Regex;
use serde_json::{Value, json};

use self::cel_rules::Rules;
use super::error::Cause;

/// Schema of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Value,
    rules: Rules,
    patterns: HashMap<String, Regex>,
}

impl Schema {
    pub(crate) fn new(validation: Option<&CustomResourceValidation>) -> Self {
        let props = validation.and_then(|validation| validation.open_api_v3_schema.as_ref());
        let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Self::from_document(
            props
                .and_then(|props| serde_json::to_value(props).ok())
                .unwrap_or_else(open),
        )
    }

    fn from_document(root: Value) -> Self {
        let mut patterns = HashMap::new();
        collect_patterns(&root, &mut patterns);
        Self {
            rules: Rules::new(&root),
            patterns,
            root,
        }
    }

    /// Schema as JSON, for OpenAPI.
    pub(crate) fn document(&self) -> &Value {
        &self.root
    }

    /// Schema of the field at `path`. List items and map values count as one step each.
    pub(crate) fn field(&self, path: &[&str]) -> Option<&Value> {
        path.iter()
            .try_fold(&self.root, |schema, &step| step_into(schema, step))
    }

    /// Removes unknown fields and returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune::prune_root(&self.root, object, &mut unknown);
        unknown
    }

    pub(crate) fn fill_defaults(&self, object: &mut Value) {
        defaults::fill(&self.root, object);
    }

    /// Returns all violations. Violations that the old object already has are accepted, so that an
    /// object of an older schema can be updated and repaired.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = self.check_values(object);
        if let (false, Some(old)) = (causes.is_empty(), old) {
            let before = self.check_values(old);
            causes.retain(|cause| !before.contains(cause));
        }
        if !causes.is_empty() {
            return causes;
        }
        self.rules.evaluate(object, old)
    }

    fn check_values(&self, object: &Value) -> Vec<Cause> {
        check::check(&self.root, &self.patterns, object)
    }
}

/// Schema of a property, list item or map value.
fn step_into<'a>(schema: &'a Value, step: &str) -> Option<&'a Value> {
    let property = schema["properties"].get(step);
    property
        .or_else(|| schema.get("items"))
        .or_else(|| schema.get("additionalProperties"))
        .filter(|found| found.is_object())
}

fn collect_patterns(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
                compile(pattern, patterns);
            }
            fields
                .values()
                .for_each(|child| collect_patterns(child, patterns));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|child| collect_patterns(child, patterns)),
        _ => {}
    }
}

fn compile(pattern: &str, patterns: &mut HashMap<String, Regex>) {
    match Regex::new(pattern) {
        Ok(regex) => {
            patterns.insert(pattern.to_owned(), regex);
        }
        Err(error) => {
            tracing::warn!(pattern, %error,
                "a pattern in a schema does not compile and is not checked");
        }
    }
}

/// Joins a path such as `spec.env[3].name`.
fn join_path(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

#[cfg(test)]
mod tests;
