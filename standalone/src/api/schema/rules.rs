//! The CEL rules of a schema (`x-kubernetes-validations`), compiled once. The evaluation is kube's own client-side
//! engine; here its findings only take the form the server reports them in.

use std::fmt;

use kube_cel::{CompiledSchema, ValidationError, Validator, compile_schema};
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::error::{Cause, CauseReason};

pub(super) struct Rules(Option<Compiled>);

struct Compiled {
    schema: CompiledSchema,
    /// May be sent between threads but not shared by them.
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

    pub(super) fn evaluate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Some(compiled) = &self.0 else {
            return Vec::new();
        };
        let verdict = compiled
            .validator
            .lock()
            .validate_compiled(&compiled.schema, object, old);
        verdict
            .err()
            .into_iter()
            .flatten()
            .map(|error| cause(&error, object))
            .collect()
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
    // The server's own spelling of "the whole object".
    let field = if error.field_path.is_empty() {
        "<nil>"
    } else {
        &error.field_path
    };
    Cause::new(reason, field, text)
}

/// The server shows the type in place of the value, which may be large.
fn type_at(object: &Value, path: &str) -> &'static str {
    let steps = path
        .split(['.', '['])
        .filter(|step| !step.is_empty())
        .map(|step| step.trim_end_matches(']'));
    let found = steps
        .into_iter()
        .try_fold(object, |value, step| match step.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(step),
        });
    found.map_or("object", super::check::type_name)
}
