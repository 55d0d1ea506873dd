//! The action language (`docs/specs/browser.md`, section 2): a text that contains calls, among
//! prose perhaps, becomes typed operations.
//!
//! `parse` finds all calls before the first one runs. `Call::bind` checks the arguments of one
//! call when its turn comes, because a wrong call must not stop the calls before it.

mod call;
mod literal;
mod operation;
mod scan;
mod value;

pub use call::Call;
pub use operation::{Click, Deferred, MouseButton, Operation};
pub use value::Value;

use crate::error::StepError;

/// Finds the calls of a program, at least one. Nothing may run after an error.
pub fn parse(text: &str) -> Result<Vec<Call>, StepError> {
    let calls = scan::scan(text)?;
    if calls.is_empty() {
        return Err(StepError::new("ValueError", "Received an empty action."));
    }
    for call in &calls {
        call.check_name()?;
    }
    for call in &calls {
        call.check_keywords()?;
    }
    Ok(calls)
}

#[cfg(test)]
mod tests;
