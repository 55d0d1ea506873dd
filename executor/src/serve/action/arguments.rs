//! Reads the arguments of an action leniently: null arguments are absent, and flags may be words.

use browser::python_repr::repr;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ActionError, Range};

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

    pub(super) fn require(
        &self,
        class: &'static str,
        required: &[&'static str],
    ) -> Result<(), ActionError> {
        let given = |name: &str| self.values.is_some_and(|values| values.contains_key(name));
        let missing = required.iter().filter(|name| !given(name));
        let names: Vec<_> = missing.copied().collect();
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

    pub(super) fn get<T: Deserialize<'a>>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, ActionError> {
        self.values.map_or(Ok(None), |values| parse(values, name))
    }

    /// Parses a flag. Models also write flags as words, and some clients pass those on.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, ActionError> {
        let truth = |value| match value {
            Value::Bool(truth) => Some(truth),
            Value::Number(number) => number.as_i64().map(|number| number != 0),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" => Some(true),
                "false" | "" => Some(false),
                _ => None,
            },
            _ => None,
        };
        let given: Option<Value> = self.get(name)?;
        given
            .map(|value| truth(value).ok_or(ActionError::Type(name)))
            .transpose()
    }

    pub(super) fn range(&self) -> Result<Range, ActionError> {
        Ok(Range {
            start: self.get("start")?.unwrap_or(0),
            end: self.get("end")?.unwrap_or(-1),
        })
    }

    /// Reads the timeout, which is beside the arguments.
    pub(super) fn timeout(&self) -> Result<Option<f64>, ActionError> {
        parse(self.envelope, "timeout")
    }
}

fn parse<'a, T: Deserialize<'a>>(
    values: &'a Map<String, Value>,
    name: &'static str,
) -> Result<Option<T>, ActionError> {
    let value = values.get(name).unwrap_or(&Value::Null);
    Option::deserialize(value).map_err(|_| ActionError::Type(name))
}
