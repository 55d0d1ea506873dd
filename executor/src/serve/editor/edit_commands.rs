//! The commands that change a file: `create`, `str_replace`, `insert`, `undo_edit`.

use std::ops::Range;

use parking_lot::Mutex;

use super::EditError;
use super::diff::diff;
use super::edit_target::EditTarget;
use super::history::History;
use super::line_numbers::number;
use crate::serve::files::{self, TextDocument, describe};

/// Lines of context around a change in a snippet.
const CONTEXT: usize = 4;

/// Text of a command and the change of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) content: String,
    pub(crate) diff: String,
    /// Text of the file before the change, if it existed.
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

pub(super) fn create(
    history: &Mutex<History>,
    target: &EditTarget,
    text: &str,
) -> Result<Edited, EditError> {
    store(target, text.as_bytes())?;
    history.lock().push(&target.path, text.as_bytes());
    let path = target.shown();
    Ok(Edited {
        content: format!("File created successfully at: {path}"),
        diff: diff(&target.given, "", text),
        old: None,
        new: Some(text.to_owned()),
    })
}

pub(super) fn str_replace(
    history: &Mutex<History>,
    target: &EditTarget,
    old: &str,
    new: Option<&str>,
) -> Result<Edited, EditError> {
    if new == Some(old) {
        return Err(EditError::Invalid {
            parameter: "new_str",
            value: old.to_owned(),
            hint: "No replacement was performed. `new_str` and `old_str` must be different."
                .to_owned(),
        });
    }
    let new = new.unwrap_or_default();
    let (content, document) = target.load()?;
    let text = document.text();
    let (part, new) = if let Some(part) = find(text, old)? {
        (part, new)
    } else if let Some(part) = find(text, old.trim())? {
        // Models often add blanks around quoted text.
        (part, new.trim())
    } else {
        return Err(EditError::NoMatch {
            old: old.trim().to_owned(),
            path: target.shown(),
        });
    };
    let line = text[..part.start].matches('\n').count() + 1;
    let changed = document.replace(part, new);
    save(history, target, &content, &changed)?;
    let path = target.shown();
    let added = new.matches('\n').count();
    let shown = snippet(&changed, &format!("a snippet of {path}"), line, added);
    let content = format!(
        "The file {path} has been edited. {shown}Review the changes and make sure they are as \
         expected. Edit the file again if necessary."
    );
    Ok(edited(target, text, changed.text(), content))
}

pub(super) fn insert(
    history: &Mutex<History>,
    target: &EditTarget,
    line: i64,
    new: &str,
) -> Result<Edited, EditError> {
    let (content, document) = target.load()?;
    let text = document.text();
    let count = text.split_inclusive('\n').count();
    let within = usize::try_from(line).ok().filter(|line| *line <= count);
    let line = within.ok_or_else(|| EditError::Invalid {
        parameter: "insert_line",
        value: line.to_string(),
        hint: format!("It should be within the range of allowed values: [0, {count}]"),
    })?;
    let at = lines(text, 1, line).len();
    // The Python server would append to a last line without newline.
    let needs_newline = at > 0 && !text[..at].ends_with('\n');
    let inserted = format!("{}{new}\n", if needs_newline { "\n" } else { "" });
    let changed = document.replace(at..at, &inserted);
    save(history, target, &content, &changed)?;
    let path = target.shown();
    let added = new.split('\n').count();
    let shown = snippet(&changed, "a snippet of the edited file", line, added);
    let content = format!(
        "The file {path} has been edited. {shown}Review the changes and make sure they are as \
         expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary."
    );
    Ok(edited(target, text, changed.text(), content))
}

pub(super) fn undo(history: &Mutex<History>, target: &EditTarget) -> Result<Edited, EditError> {
    let current = target.bytes()?;
    let path = target.shown();
    let restored = history.lock().last(&target.path);
    let restored = restored.ok_or_else(|| EditError::NoHistory(path.clone()))?;
    store(target, &restored)?;
    history.lock().pop(&target.path);
    let [current, restored] = [current, restored].map(|content| TextDocument::decode(&content));
    let shown = number(restored.text(), &path, 1);
    let content = format!("Last edit to {path} undone successfully. {shown}");
    Ok(edited(target, current.text(), restored.text(), content))
}

/// Shows the lines around a change that starts in `line`.
fn snippet(document: &TextDocument, subject: &str, line: usize, added: usize) -> String {
    let first = line.saturating_sub(CONTEXT) + 1;
    number(
        lines(document.text(), first, line + CONTEXT + added),
        subject,
        first,
    )
}

fn edited(target: &EditTarget, old: &str, new: &str, content: String) -> Edited {
    Edited {
        content,
        diff: diff(&target.given, old, new),
        old: Some(old.to_owned()),
        new: Some(new.to_owned()),
    }
}

/// Writes a changed document and records the old content in the history.
fn save(
    history: &Mutex<History>,
    target: &EditTarget,
    old: &[u8],
    new: &TextDocument,
) -> Result<(), EditError> {
    let content = new.encode().map_err(|error| target.unwritable(&error))?;
    store(target, &content)?;
    history.lock().push(&target.path, old);
    Ok(())
}

fn store(target: &EditTarget, content: &[u8]) -> Result<(), EditError> {
    files::replace_file(&target.path, content)
        .map_err(|error| target.unwritable(&describe(&error, &target.path)))
}

/// Returns the only match of `old`.
fn find(text: &str, old: &str) -> Result<Option<Range<usize>>, EditError> {
    let mut found = text.match_indices(old).map(|(start, _)| start);
    let Some(start) = found.next() else {
        return Ok(None);
    };
    if found.next().is_none() {
        return Ok(Some(start..start + old.len()));
    }
    Err(EditError::ManyMatches {
        old: old.to_owned(),
        lines: lines_of(text, old),
    })
}

/// Lines, from 1, on which a match of `old` starts.
fn lines_of(text: &str, old: &str) -> Vec<usize> {
    let (mut line, mut counted) = (1, 0);
    let mut lines = Vec::new();
    for (start, _) in text.match_indices(old) {
        line += text[counted..start].matches('\n').count();
        counted = start;
        lines.push(line);
    }
    lines.dedup();
    lines
}

/// Returns lines `first` to `last`, from 1, with their newlines.
pub(super) fn lines(text: &str, first: usize, last: usize) -> &str {
    let offset = |count| -> usize { text.split_inclusive('\n').take(count).map(str::len).sum() };
    let (start, end) = (offset(first - 1), offset(last));
    &text[start..end.max(start)]
}
