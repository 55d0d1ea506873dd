//! Schema of a custom resource: pruning, defaults, value checks and CEL rules, as on a real server.
//! A test keeps the CRDs of the product to the keywords that are supported here.

mod cel_rules;
mod check;

use std::collections::HashMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceValidation;
use regex::Regex;
use serde_json::{Map, Value, json};

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
        let schema = validation.and_then(|validation| validation.open_api_v3_schema.as_ref());
        let schema = schema.and_then(|schema| serde_json::to_value(schema).ok());
        let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Self::from_document(schema.unwrap_or_else(open))
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
        path.iter().try_fold(&self.root, |schema, step| {
            let items = schema.get("items");
            items.or_else(|| child(schema, step))
        })
    }

    /// Removes unknown fields (never `apiVersion`, `kind`, `metadata`) and collects their paths.
    pub(crate) fn prune(&self, object: &mut Value, unknown: &mut Vec<String>) {
        let Value::Object(fields) = object else {
            return;
        };
        let kept = ["apiVersion", "kind", "metadata"].map(|key| fields.remove_entry(key));
        prune(&self.root, object, "", unknown);
        if let Value::Object(fields) = object {
            fields.extend(kept.into_iter().flatten());
        }
    }

    pub(crate) fn fill_defaults(&self, object: &mut Value) {
        fill_defaults(&self.root, object);
    }

    /// Returns all violations. Violations that the old object already has are accepted, so that an
    /// object of an older schema can be updated and repaired.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = check::check(&self.root, &self.patterns, object);
        if let (false, Some(old)) = (causes.is_empty(), old) {
            let before = check::check(&self.root, &self.patterns, old);
            causes.retain(|cause| !before.contains(cause));
        }
        if causes.is_empty() {
            return self.rules.evaluate(object, old);
        }
        causes
    }
}

/// Schema of a property or map value.
fn child<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let known = schema["properties"].get(key);
    known.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|values| values.is_object())
    })
}

fn prune(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let known = child(schema, key);
            if let Some(known) = known {
                prune(known, value, &join_path(path, key), unknown);
            } else if !is_open {
                unknown.push(join_path(path, key));
            }
            known.is_some() || is_open
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Structural defaulting at every level that exists. A null in a known field counts as missing.
fn fill_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !value.is_null() || child(schema, key).is_none());
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                if let (false, Some(default)) = (fields.contains_key(key), property.get("default"))
                {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in fields {
                if let Some(known) = child(schema, key) {
                    fill_defaults(known, value);
                }
            }
        }
        Value::Array(items) => {
            let items = items.iter_mut();
            items.for_each(|item| fill_defaults(&schema["items"], item));
        }
        _ => {}
    }
}

fn collect_patterns(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    if let Some(pattern) = schema["pattern"].as_str() {
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
    let fields = schema.as_object().into_iter().flat_map(Map::values);
    fields.for_each(|child| collect_patterns(child, patterns));
}

/// Joins a path such as `spec.env[3].name`.
pub(crate) fn join_path(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

#[cfg(test)]
mod tests;
