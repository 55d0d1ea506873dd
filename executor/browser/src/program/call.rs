//! Calls and the signatures of the 20 actions. Arguments are bound to parameters as Python does
//! it, with Python's errors in Python's order.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::value::Value;
use crate::error::StepError;

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub name: String,
    pub positional: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

struct Signature {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Accepted by later versions of the Python browser only, so that it has no position here.
    named_only: &'static [&'static str],
}

const fn signature(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Signature {
    Signature {
        name,
        required,
        optional,
        named_only: &[],
    }
}

const SIGNATURES: [Signature; 20] = [
    signature("noop", &[], &["wait_ms"]),
    signature("goto", &["url"], &[]),
    signature("go_back", &[], &[]),
    signature("go_forward", &[], &[]),
    signature("new_tab", &[], &[]),
    signature("tab_close", &[], &[]),
    signature("tab_focus", &["index"], &[]),
    signature("scroll", &["delta_x", "delta_y"], &[]),
    Signature {
        named_only: &["enable_autocomplete_menu"],
        ..signature("fill", &["bid", "value"], &[])
    },
    signature("clear", &["bid"], &[]),
    signature("select_option", &["bid", "options"], &[]),
    signature("click", &["bid"], &["button", "modifiers"]),
    signature("dblclick", &["bid"], &["button", "modifiers"]),
    signature("hover", &["bid"], &[]),
    signature("focus", &["bid"], &[]),
    signature("press", &["bid", "key_comb"], &[]),
    signature("drag_and_drop", &["from_bid", "to_bid"], &[]),
    signature("upload_file", &["bid", "file"], &[]),
    signature("send_msg_to_user", &["text"], &[]),
    signature("report_infeasible", &["reason"], &[]),
];

/// Returns whether the name is one of the 20 actions.
pub(super) fn is_action(name: &str) -> bool {
    find_signature(name).is_some()
}

fn find_signature(name: &str) -> Option<&'static Signature> {
    SIGNATURES.iter().find(|signature| signature.name == name)
}

impl Call {
    pub(super) fn check_name(&self) -> Result<(), StepError> {
        self.signature().map(drop)
    }

    /// Rejects a keyword that is given twice, which Python finds before it runs anything.
    pub(super) fn check_keywords(&self) -> Result<(), StepError> {
        let mut seen = HashSet::new();
        for (name, _) in &self.named {
            if !seen.insert(name) {
                let message = format!("keyword argument repeated: {name}");
                return Err(StepError::new("SyntaxError", message));
            }
        }
        Ok(())
    }

    fn signature(&self) -> Result<&'static Signature, StepError> {
        find_signature(&self.name).ok_or_else(|| {
            let message = format!("Invalid action type '{}'.", self.name);
            StepError::new("NameError", message)
        })
    }

    /// Returns the arguments in the order of the parameters; `None` for those left out.
    pub(super) fn into_arguments(self) -> Result<Vec<Option<Value>>, StepError> {
        let signature = self.signature()?;
        let positions = signature.required.len() + signature.optional.len();
        let parameters = [signature.required, signature.optional, signature.named_only].concat();
        let given = self.positional.len();
        let named = self.named.iter().map(|(_, value)| value);
        if self
            .positional
            .iter()
            .chain(named)
            .any(Value::contains_infinity)
        {
            // The Python server pastes `repr` of the value into a program, where it is a name.
            return Err(StepError::new("NameError", "name 'inf' is not defined"));
        }

        let mut values = self.positional.into_iter().map(Some).collect::<Vec<_>>();
        values.truncate(positions);
        values.resize(parameters.len(), None);
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| *parameter == name) {
                None => {
                    let problem = format!("got an unexpected keyword argument '{name}'");
                    return Err(signature.error(&problem));
                }
                Some(index) if values[index].is_some() => {
                    let problem = format!("got multiple values for argument '{name}'");
                    return Err(signature.error(&problem));
                }
                Some(index) => values[index] = Some(value),
            }
        }
        if given > positions {
            return Err(signature.too_many(given));
        }
        let missing = signature
            .required
            .iter()
            .zip(&values)
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| format!("'{name}'"))
            .collect::<Vec<_>>();
        if missing.is_empty() {
            Ok(values)
        } else {
            Err(signature.missing(&missing))
        }
    }
}

impl Signature {
    fn error(&self, problem: &str) -> StepError {
        StepError::new("TypeError", format!("{}() {problem}", self.name))
    }

    fn too_many(&self, given: usize) -> StepError {
        let required = self.required.len();
        let mut takes = required.to_string();
        if !self.optional.is_empty() {
            takes = format!("from {required} to {}", required + self.optional.len());
        }
        let plural = if takes == "1" { "" } else { "s" };
        let were = if given == 1 { "was" } else { "were" };
        self.error(&format!(
            "takes {takes} positional argument{plural} but {given} {were} given"
        ))
    }

    /// No action has more than two required parameters.
    fn missing(&self, names: &[String]) -> StepError {
        let mut problem = format!("missing {} required positional argument", names.len());
        if names.len() > 1 {
            problem.push('s');
        }
        let _ = write!(problem, ": {}", names.join(" and "));
        self.error(&problem)
    }
}
