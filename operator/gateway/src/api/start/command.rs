//! Reads the command: an argument list, or a line that is split by shell quoting. No shell runs it.

use crds::shell_words;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::ApiError;
use crate::exec_limits::{check_command, check_line};

/// Command as one line or as an argument list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "odd command, expected text or a list of texts")]
#[schemars(rename = "StartCommand")]
pub(super) enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

/// Program and arguments of a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedCommand {
    pub(super) words: Vec<String>,
    /// Line that the client sent, which responses repeat.
    pub(super) line: Option<String>,
}

/// Reads a command. Null and empty ones stand for the command of the image.
pub(super) fn read(raw: Option<RawCommand>) -> Result<Option<ParsedCommand>, ApiError> {
    let command = match raw {
        None => return Ok(None),
        Some(RawCommand::Words(words)) => ParsedCommand { words, line: None },
        Some(RawCommand::Line(line)) => {
            check_line(&line)?;
            let words = shell_words::split(&line);
            let words =
                words.map_err(|error| ApiError::bad_request(format!("command: {error}")))?;
            ParsedCommand {
                words,
                line: Some(line),
            }
        }
    };
    check_command(&command.words)?;
    Ok(Some(command).filter(|command| !command.words.is_empty()))
}
