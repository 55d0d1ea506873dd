//! What no program can be started with, however often the controller tries: found here, the client is
//! told while it still listens.

use crate::gateway::api::ApiError;

/// Longest variable that Linux hands to a program, in bytes: `NAME=VALUE` and the final NUL.
const LONGEST_VARIABLE: usize = 128 * 1024;

/// Refuses text that would end early for every program.
pub(super) fn check_text(field: &str, text: &str) -> Result<(), ApiError> {
    if text.contains('\0') {
        return Err(ApiError::bad(format!("{field} has NUL in it")));
    }
    Ok(())
}

/// Refuses a variable that no program can be given.
pub(super) fn check_variable(name: &str, value: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ApiError::bad(
            "environment has a name that is empty or has = or NUL in it",
        ));
    }
    if name.len() + value.len() + 2 > LONGEST_VARIABLE {
        let start: String = name.chars().take(64).collect();
        return Err(ApiError::bad(format!(
            "environment: {start} is longer than 128 KiB, the most that Linux gives to a program"
        )));
    }
    check_text(&format!("environment: the value of {name}"), value)
}
