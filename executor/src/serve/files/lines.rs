//! Ranges of lines (`docs/specs/executor.md`, sections 6.1 and 6.3).

use super::charset::Charset;
use super::text_document::TextDocument;
use crate::serve::action::Range;

/// Returns the selected lines of `text`, each with its newline.
pub(super) fn select(text: &str, range: Range) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let count = lines.len();
    let start = clamp(range.start, count);
    if range.end == -1 {
        return lines[start..].concat();
    }
    let begin = start.min(count.saturating_sub(2));
    let end = clamp(range.end, count).max(begin + 1).min(count);
    lines[begin..end].concat()
}

/// Replaces the lines of a range by `content` and a newline. They get the newlines of the document,
/// except if all lines are replaced.
pub(super) fn replace(old: &TextDocument, content: &str, range: Range) -> TextDocument {
    if (range.start, range.end) == (0, -1) {
        return TextDocument::of(Charset::UTF_8, format!("{content}\n"));
    }
    let text = old.text();
    let start = offset(text, range.start);
    let end = if range.end == -1 {
        text.len()
    } else {
        offset(text, range.end)
    };
    let new = format!("{content}\n");
    if end >= start {
        return old.replace(start..end, &new);
    }
    // With an end before the start, the lines between occur twice.
    let repeated = format!("{new}{}", &text[end..start]);
    old.replace(start..start, &repeated)
}

/// Byte offset of the start of a line.
fn offset(text: &str, line: i64) -> usize {
    let count = usize::try_from(line).unwrap_or(0);
    text.split_inclusive('\n').take(count).map(str::len).sum()
}

fn clamp(index: i64, count: usize) -> usize {
    usize::try_from(index).unwrap_or(0).min(count)
}
