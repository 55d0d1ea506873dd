//! The editor behind `edit` and behind `read` with `impl_source: "oh_aci"` (spec 6.2, 6.4).
//!
//! A conversation of a model with its tool: every failure is a text that tells it what to do
//! better. Checks come in the original's order, since models have learnt the texts.

mod change;
mod diff;
mod error;
mod history;
mod matcher;
mod number;
mod path;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod tree;
mod view;

use std::path::Path;

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

pub(super) use self::error::EditError;
use self::history::History;
use self::path::Target;
use super::action::{Edit, Line};
use super::files::{self, Document};

/// Larger files are for other tools.
const MAX_SIZE: u64 = 10 << 20;
/// Documents that the original converts to Markdown, if it can.
const CONVERTIBLE: [&str; 8] = ["docx", "xlsx", "pptx", "pdf", "mp3", "wav", "m4a", "flac"];

#[derive(Debug)]
pub(super) struct Editor {
    history: Mutex<History>,
    /// Changes come one after the other; views do not wait for them.
    turn: tokio::sync::Mutex<()>,
}

/// What a command has to say, and how the file has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) content: String,
    pub(super) diff: String,
    /// The text of the file before, if there was one and it may have changed.
    pub(super) old: Option<String>,
    /// The text of the file after, if it may have changed.
    pub(super) new: Option<String>,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self {
            history: Mutex::new(History::new()),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Held by whoever changes files through actions.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Carries out a command. Blocks, and has the rights of the thread that calls it.
    pub(super) fn run(&self, edit: &Edit, working_dir: &Path) -> Result<Edited, EditError> {
        let line = edit.insert_line.as_ref().map(Line::number).transpose();
        let line = line.map_err(EditError::Line)?;
        let target = Target::check(&edit.command, &edit.path, working_dir)?;
        let missing = |parameter| EditError::Missing {
            parameter,
            command: edit.command.clone(),
        };
        match edit.command.as_str() {
            "view" => view::view(&target, edit.view_range.as_ref()).map(|content| Edited {
                content,
                ..Edited::default()
            }),
            "create" => {
                let text = edit.file_text.as_deref();
                self.create(&target, text.ok_or_else(|| missing("file_text"))?)
            }
            "str_replace" => {
                let old = edit.old_str.as_deref().ok_or_else(|| missing("old_str"))?;
                self.str_replace(&target, old, edit.new_str.as_deref())
            }
            "insert" => {
                let line = line.ok_or_else(|| missing("insert_line"))?;
                let new = edit.new_str.as_deref().ok_or_else(|| missing("new_str"))?;
                self.insert(&target, line, new)
            }
            "undo_edit" => self.undo(&target),
            other => Err(EditError::Command(other.to_owned())),
        }
    }
}

/// Reads a file that may be edited.
fn load(target: &Target) -> Result<(Vec<u8>, Document), EditError> {
    let content = bytes(target)?;
    let document = Document::decode(&content);
    Ok((content, document))
}

fn bytes(target: &Target) -> Result<Vec<u8>, EditError> {
    if target.is_file() {
        target.check_size()?;
        if !target.is_convertible() && files::is_binary(target.path()) {
            return Err(target.invalid_file(
                "File appears to be binary and this file type cannot be read or edited by this tool.",
            ));
        }
    }
    files::bytes(target.path()).map_err(|error| target.unreadable(&error))
}
