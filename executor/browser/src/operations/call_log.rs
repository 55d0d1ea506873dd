//! Errors of operations on elements in the words of section 2.2. Of the log, they have the lines
//! that tell something; the original repeats them for every try.

use super::page::closed_error;
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::tabs::ScriptError;

/// Words of an operation in its errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// `Locator.click` and so on.
    pub(super) method: &'static str,
    /// Name of the action that is tried again and again.
    pub(super) action: Option<&'static str>,
    /// States that a try waits for.
    pub(super) states: &'static str,
}

/// The course of an operation.
#[derive(Debug, Clone)]
pub(super) struct CallLog {
    pub(super) words: Words,
    pub(super) locator: String,
    /// The element in a line, once it was found.
    pub(super) element: Option<String>,
    /// Line about the arguments.
    pub(super) note: Option<String>,
    /// Failure of the last try.
    pub(super) reason: Option<String>,
}

impl CallLog {
    pub(super) fn timeout(&self, milliseconds: u128) -> StepError {
        let method = self.words.method;
        let message = format!("{method}: Timeout {milliseconds}ms exceeded.\n{self}");
        StepError::new("TimeoutError", message)
    }

    pub(super) fn error(&self, text: &str) -> StepError {
        let method = self.words.method;
        StepError::new("Error", format!("{method}: {text}\n{self}"))
    }

    pub(super) fn of_script(&self, error: &ScriptError, milliseconds: u128) -> StepError {
        match error {
            ScriptError::Browser(CdpError::Timeout(_)) | ScriptError::Gone => {
                self.timeout(milliseconds)
            }
            ScriptError::Browser(CdpError::Closed) => closed_error(self.words.method),
            ScriptError::Browser(error) => self.error(&error.to_string()),
            ScriptError::Exception(text) => self.error(text),
        }
    }
}

impl std::fmt::Display for CallLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "Call log:\n  - waiting for {}", self.locator)?;
        let Some(element) = &self.element else {
            return Ok(());
        };
        writeln!(f, "    - locator resolved to {element}")?;
        if let Some(note) = &self.note {
            writeln!(f, "{note}")?;
        }
        if let Some(action) = self.words.action {
            writeln!(f, "  - attempting {action} action")?;
            writeln!(f, "    - waiting for element to be {}", self.words.states)?;
        }
        if let Some(reason) = &self.reason {
            writeln!(f, "    - {reason}")?;
        }
        Ok(())
    }
}
