//! The commands that change a file: `create`, `str_replace`, `insert`, `undo_edit`.

use std::ops::Range;

use super::diff::diff;
use super::error::EditError;
use super::number::number;
use super::path::Target;
use super::{Edited, Editor, bytes, load};
use crate::serve::files::{self, Document, describe};

/// Lines that are shown around a change.
const CONTEXT: usize = 4;

impl Editor {
    pub(super) fn create(&self, target: &Target, text: &str) -> Result<Edited, EditError> {
        store(target, text.as_bytes())?;
        self.history.lock().push(target.path(), text.as_bytes());
        let path = target.shown();
        Ok(Edited {
            content: format!("File created successfully at: {path}"),
            diff: diff(target.given(), "", text),
            old: None,
            new: Some(text.to_owned()),
        })
    }

    pub(super) fn str_replace(
        &self,
        target: &Target,
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
        let (content, document) = load(target)?;
        let text = document.text();
        let (part, new) = match find(text, old)? {
            Some(part) => (part, new),
            // Models often add blanks around what they quote.
            None => match find(text, old.trim())? {
                Some(part) => (part, new.trim()),
                None => {
                    return Err(EditError::NoMatch {
                        old: old.trim().to_owned(),
                        path: target.shown(),
                    });
                }
            },
        };
        let line = line_at(text, part.start);
        let changed = document.replace(part, new);
        self.save(target, &content, &changed)?;
        let path = target.shown();
        let first = line.saturating_sub(CONTEXT) + 1;
        let last = line + CONTEXT + new.matches('\n').count();
        let snippet = lines(changed.text(), first, last);
        let shown = number(snippet, &format!("a snippet of {path}"), first);
        Ok(Edited {
            content: format!(
                "The file {path} has been edited. {shown}Review the changes and make sure they \
                 are as expected. Edit the file again if necessary."
            ),
            diff: diff(target.given(), text, changed.text()),
            old: Some(text.to_owned()),
            new: Some(changed.text().to_owned()),
        })
    }

    pub(super) fn insert(
        &self,
        target: &Target,
        line: i64,
        new: &str,
    ) -> Result<Edited, EditError> {
        let (content, document) = load(target)?;
        let text = document.text();
        let count = text.split_inclusive('\n').count();
        let within = usize::try_from(line).ok().filter(|line| *line <= count);
        let line = within.ok_or_else(|| EditError::Invalid {
            parameter: "insert_line",
            value: line.to_string(),
            hint: format!("It should be within the range of allowed values: [0, {count}]"),
        })?;
        let at = lines(text, 1, line).len();
        // The original glues to a last line that has no newline.
        let glue = at > 0 && !text[..at].ends_with('\n');
        let inserted = format!("{}{new}\n", if glue { "\n" } else { "" });
        let changed = document.replace(at..at, &inserted);
        self.save(target, &content, &changed)?;
        let path = target.shown();
        let added = new.split('\n').count();
        let first = line.saturating_sub(CONTEXT) + 1;
        let last = (count + added).min(line + CONTEXT + added);
        let snippet = lines(changed.text(), first, last);
        let shown = number(snippet, "a snippet of the edited file", first);
        Ok(Edited {
            content: format!(
                "The file {path} has been edited. {shown}Review the changes and make sure they \
                 are as expected (correct indentation, no duplicate lines, etc). Edit the file \
                 again if necessary."
            ),
            diff: diff(target.given(), text, changed.text()),
            old: Some(text.to_owned()),
            new: Some(changed.text().to_owned()),
        })
    }

    pub(super) fn undo(&self, target: &Target) -> Result<Edited, EditError> {
        let current = bytes(target)?;
        let path = target.shown();
        let restored = self.history.lock().last(target.path());
        let restored = restored.ok_or_else(|| EditError::NoHistory(path.clone()))?;
        store(target, &restored)?;
        self.history.lock().pop(target.path());
        let (current, restored) = (Document::decode(&current), Document::decode(&restored));
        let shown = number(restored.text(), &path, 1);
        Ok(Edited {
            content: format!("Last edit to {path} undone successfully. {shown}"),
            diff: diff(target.given(), current.text(), restored.text()),
            old: Some(current.text().to_owned()),
            new: Some(restored.text().to_owned()),
        })
    }

    /// Writes a changed document and remembers what was there.
    fn save(&self, target: &Target, old: &[u8], new: &Document) -> Result<(), EditError> {
        let content = new.encode().map_err(|error| target.unwritable(&error))?;
        store(target, &content)?;
        self.history.lock().push(target.path(), old);
        Ok(())
    }
}

fn store(target: &Target, content: &[u8]) -> Result<(), EditError> {
    files::put(target.path(), content)
        .map_err(|error| target.unwritable(&describe(&error, target.path())))
}

/// The one place where `old` is.
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

/// The lines, from 1, on which `old` starts.
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

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Lines `first` to `last`, from 1, with their newlines.
pub(super) fn lines(text: &str, first: usize, last: usize) -> &str {
    let offset = |count| -> usize { text.split_inclusive('\n').take(count).map(str::len).sum() };
    let (start, end) = (offset(first - 1), offset(last));
    &text[start..end.max(start)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_out() {
        assert_eq!(lines("a\nb\nc", 1, 2), "a\nb\n");
        assert_eq!(lines("a\nb\nc", 3, 9), "c");
        assert_eq!(lines("a\nb\nc", 9, 10), "");
        assert_eq!(lines("a\nb\nc", 1, 0), "");
    }

    #[test]
    fn matches_are_counted_by_line() {
        assert_eq!(lines_of("x x\ny\nx\n", "x"), [1, 3]);
        assert_eq!(lines_of("a\nb\nc\n", ""), [1, 2, 3, 4]);
        assert_eq!(find("ab", "b").unwrap(), Some(1..2));
        assert_eq!(find("ab", "c").unwrap(), None);
        assert_eq!(find("", "").unwrap(), Some(0..0));
    }
}
