//! The editor for `edit` and for `read` with `impl_source: "oh_aci"` (`docs/specs/executor.md`,
//! sections 6.2 and 6.4).
//!
//! Its user is a model: every error is a text that says how to correct the call. Checks have the
//! order of the Python server, because models know its texts.

mod diff;
mod difflib;
mod directory_view;
mod edit_commands;
mod edit_target;
mod history;
mod line_numbers;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod view;

use std::path::Path;

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

pub(super) use self::edit_commands::Edited;
use self::edit_target::EditTarget;
use self::history::History;
use super::action::{Edit, LineNumber};

/// Errors in the words of the Python server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum EditError {
    #[error("Invalid `{parameter}` parameter: {value}. {hint}")]
    Invalid {
        parameter: &'static str,
        value: String,
        hint: String,
    },
    #[error("Invalid insert_line value: '{0}'. Expected an integer.")]
    Line(String),
    #[error("Parameter `{parameter}` is required for command: {command}.")]
    Missing {
        parameter: &'static str,
        command: String,
    },
    #[error(
        "Unrecognized command {0}. The allowed commands for the oh_editor tool are: view, create, \
         str_replace, insert, undo_edit"
    )]
    Command(String),
    #[error("No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")]
    NoMatch { old: String, path: String },
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{old}` in lines {lines:?}. \
         Please ensure it is unique."
    )]
    ManyMatches { old: String, lines: Vec<usize> },
    #[error("File validation failed for {path}: {reason}")]
    File { path: String, reason: String },
    #[error(
        "Error in converting file to Markdown: {reason}. Please use Python code to read {path}"
    )]
    Conversion { path: String, reason: &'static str },
    #[error("No edit history found for {0}.")]
    NoHistory(String),
    #[error("Ran into {error} while trying to {operation} {path}")]
    System {
        error: String,
        operation: &'static str,
        path: String,
    },
}

#[derive(Debug)]
pub(super) struct Editor {
    history: Mutex<History>,
    /// Serializes changes; views do not wait for it.
    write_lock: tokio::sync::Mutex<()>,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self {
            history: Mutex::new(History::new()),
            write_lock: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) async fn write_lock(&self) -> MutexGuard<'_, ()> {
        self.write_lock.lock().await
    }

    /// Runs a command, blocking, with the rights of the calling thread.
    pub(super) fn run(&self, edit: &Edit, working_dir: &Path) -> Result<Edited, EditError> {
        let line = edit.insert_line.as_ref().map(LineNumber::number);
        let line = line.transpose().map_err(EditError::Line)?;
        let target = EditTarget::check(&edit.command, &edit.path, working_dir)?;
        let missing = |parameter| EditError::Missing {
            parameter,
            command: edit.command.clone(),
        };
        let history = &self.history;
        match edit.command.as_str() {
            "view" => {
                let (range, converted) = (edit.view_range.as_ref(), edit.file_text.as_deref());
                Ok(Edited {
                    content: view::view(&target, range, converted)?,
                    ..Edited::default()
                })
            }
            "create" => {
                let text = edit.file_text.as_deref();
                edit_commands::create(history, &target, text.ok_or_else(|| missing("file_text"))?)
            }
            "str_replace" => {
                let old = edit.old_str.as_deref().ok_or_else(|| missing("old_str"))?;
                edit_commands::str_replace(history, &target, old, edit.new_str.as_deref())
            }
            "insert" => {
                let line = line.ok_or_else(|| missing("insert_line"))?;
                let new = edit.new_str.as_deref().ok_or_else(|| missing("new_str"))?;
                edit_commands::insert(history, &target, line, new)
            }
            "undo_edit" => edit_commands::undo(history, &target),
            other => Err(EditError::Command(other.to_owned())),
        }
    }
}
