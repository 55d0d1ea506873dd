//! Reads the arguments of an action leniently: null arguments are absent, and flags may be words.

use serde_json::{Map, Value};

use super::error::ActionError;
use super::lines::{LineNumber, Range};
use crate::serve::python_repr::repr;

/// Arguments of an action.
pub(super) struct Arguments<'a> {
    envelope: &'a Map<String, Value>,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(envelope: &'a Map<String, Value>) -> Self {
        Self {
            envelope,
            values: envelope.get("args").and_then(Value::as_object),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.values?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn require(
        &self,
        class: &'static str,
        required: &[&'static str],
    ) -> Result<(), ActionError> {
        let given = |name: &&'static str| self.values.is_some_and(|v| v.contains_key(*name));
        let names: Vec<_> = required
            .iter()
            .filter(|name| !given(name))
            .copied()
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let action = repr(&Value::Object(self.envelope.clone()));
        Err(ActionError::Missing {
            action,
            class,
            names,
        })
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, ActionError> {
        self.get(name)
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(ActionError::Type(name))
            })
            .transpose()
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, ActionError> {
        self.get(name).map_or(Ok(false), |value| {
            truth(value).ok_or(ActionError::Type(name))
        })
    }

    pub(super) fn line(&self, name: &'static str) -> Result<Option<LineNumber>, ActionError> {
        self.get(name)
            .map(|value| match value {
                Value::String(text) => Ok(LineNumber::Text(text.clone())),
                value => value
                    .as_i64()
                    .map(LineNumber::Number)
                    .ok_or(ActionError::Type(name)),
            })
            .transpose()
    }

    pub(super) fn range(&self) -> Result<Range, ActionError> {
        let number = |name, default| {
            self.get(name).map_or(Ok(default), |value| {
                value.as_i64().ok_or(ActionError::Type(name))
            })
        };
        Ok(Range {
            start: number("start", 0)?,
            end: number("end", -1)?,
        })
    }

    /// Reads the timeout, which is beside the arguments.
    pub(super) fn timeout(&self) -> Result<Option<f64>, ActionError> {
        match self.envelope.get("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(ActionError::Type("timeout")),
        }
    }
}

/// Parses a flag. Models also write flags as words, and some clients pass those on.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => number.as_i64().map(|number| number != 0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
