//! CEL rules of a schema (`x-kubernetes-validations`), evaluated by kube-cel and reported in the
//! server's format.

use std::fmt;

use kube_cel::{CompiledSchema, ValidationError, Validator, compile_schema};
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::error::{Cause, CauseReason};

pub(super) struct Rules(Option<Compiled>);

struct Compiled {
    schema: CompiledSchema,
    /// `Send` but not `Sync`.
    validator: Mutex<Validator>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    pub(super) fn new(root: &Value) -> Self {
        let any = root.to_string().contains("x-kubernetes-validations");
        Self(any.then(|| Compiled {
            schema: compile_schema(root),
            validator: Mutex::new(Validator::new()),
        }))
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
        let Some(compiled) = &self.0 else {
            return Vec::new();
        };
        let validator = compiled.validator.lock();
        let result = validator.validate_compiled(&compiled.schema, object, old);
        result.err().into_iter().flatten().collect()
    }
}

fn cause(error: &ValidationError, object: &Value) -> Cause {
    let message = &error.message;
    let shown = type_at(object, &error.field_path);
    let (reason, text) = match error.reason.as_deref() {
        Some("FieldValueForbidden") => (CauseReason::Forbidden, format!("Forbidden: {message}")),
        Some("FieldValueRequired") => (CauseReason::Required, format!("Required value: {message}")),
        Some("FieldValueDuplicate") => (
            CauseReason::Duplicate,
            format!("Duplicate value: \"{shown}\": {message}"),
        ),
        _ => (
            CauseReason::Invalid,
            format!("Invalid value: \"{shown}\": {message}"),
        ),
    };
    // The server's notation for the whole object.
    let field = if error.field_path.is_empty() {
        "<nil>"
    } else {
        &error.field_path
    };
    Cause::new(reason, field, text)
}

/// The server shows the type instead of the value, which may be large.
fn type_at(object: &Value, path: &str) -> &'static str {
    value_at(object, path).map_or("object", super::check::type_name)
}

fn value_at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = path
        .split(['.', '['])
        .filter(|step| !step.is_empty())
        .map(|step| step.trim_end_matches(']'));
    steps
        .into_iter()
        .try_fold(object, |value, step| match step.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(step),
        })
}
