//! CEL rules of a schema (`x-kubernetes-validations`), evaluated by kube-cel and reported in the
//! server's format.

use kube_cel::{CompiledSchema, ValidationError, Validator, compile_schema};
use parking_lot::Mutex;
use serde_json::Value;

use super::check::type_name;
use crate::api::error::Cause;

#[derive(Debug)]
pub(super) struct Rules {
    schema: CompiledSchema,
    /// `Send` but not `Sync`.
    validator: Mutex<Validator>,
}

impl Rules {
    pub(super) fn new(root: &Value) -> Self {
        Self {
            schema: compile_schema(root),
            validator: Mutex::new(Validator::new()),
        }
    }

    /// Returns the violations, except those of unchanged values that violated the rule before.
    pub(super) fn evaluate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut violations = self.violations(object, old);
        if let (false, Some(old)) = (violations.is_empty(), old) {
            let before = self.violations(old, None);
            violations.retain(|violation| {
                let path = &violation.field_path;
                let same = value_at(object, path) == value_at(old, path);
                let is_this = |known: &ValidationError| {
                    known.field_path == *path && known.message == violation.message
                };
                !(same && before.iter().any(is_this))
            });
        }
        violations
            .iter()
            .map(|violation| cause(violation, object))
            .collect()
    }

    fn violations(&self, object: &Value, old: Option<&Value>) -> Vec<ValidationError> {
        let validator = self.validator.lock();
        let result = validator.validate_compiled(&self.schema, object, old);
        result.err().into_iter().flatten().collect()
    }
}

/// Shows the type instead of the value, as the server does: the value may be large.
fn cause(error: &ValidationError, object: &Value) -> Cause {
    let shown = value_at(object, &error.field_path).map_or("object", type_name);
    // The server's notation for the whole object.
    let field = match error.field_path.as_str() {
        "" => "<nil>",
        path => path,
    };
    Cause::invalid(field, shown, &error.message)
}

fn value_at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    let mut steps = steps.map(|step| step.trim_end_matches(']'));
    steps.try_fold(object, |value, step| match step.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index),
        _ => value.get(step),
    })
}
