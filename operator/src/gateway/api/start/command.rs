//! The command: words as they are, or a line that is split into words. No shell ever runs it.

use super::request::RawCommand;
use super::words;
use crate::gateway::api::ApiError;
use crate::gateway::impossible::{check_command, check_line};

/// Program and arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) words: Vec<String>,
    /// The line, if the client sent one: it is echoed in the same shape.
    pub(super) line: Option<String>,
}

/// Reads a command. Null and empty ones mean the image's own.
pub(super) fn read(raw: Option<RawCommand>) -> Result<Option<Command>, ApiError> {
    let command = match raw {
        None => return Ok(None),
        Some(RawCommand::Words(words)) => Command { words, line: None },
        Some(RawCommand::Line(line)) => {
            check_line(&line)?;
            let words = words::split(&line);
            let words = words.map_err(|error| ApiError::bad(format!("command: {error}")))?;
            Command {
                words,
                line: Some(line),
            }
        }
    };
    check_command(&command.words)?;
    Ok(Some(command).filter(|command| !command.words.is_empty()))
}
