//! Which lines a range selects (spec 6.1, 6.3).

use super::document::Document;
use crate::serve::action::Range;

/// The selected lines of `text`, each with its newline.
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

/// Replaces the lines of a range by `content`, whose every piece gets a newline.
pub(super) fn replace(old: &Document, content: &str, range: Range) -> Document {
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
    // An end in front of the start: the lines between are there twice.
    let repeated = format!("{new}{}", &text[end..start]);
    old.replace(start..start, &repeated)
}

/// Where a line starts.
fn offset(text: &str, line: i64) -> usize {
    let count = usize::try_from(line).unwrap_or(0);
    text.split_inclusive('\n').take(count).map(str::len).sum()
}

fn clamp(index: i64, count: usize) -> usize {
    usize::try_from(index).unwrap_or(0).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_select_as_the_original_does() {
        let text = "a\nb\nc\nd\n";
        let select = |start, end| select(text, Range { start, end });
        assert_eq!(select(0, -1), text);
        assert_eq!(select(1, 2), "b\n");
        assert_eq!(select(2, -1), "c\nd\n");
        assert_eq!(select(9, 10), "c\nd\n");
        assert_eq!(select(9, -1), "");
        assert_eq!(select(-5, 1), "a\n");
        assert_eq!(super::select("", Range { start: 0, end: 5 }), "");
    }

    #[test]
    fn a_range_is_replaced() {
        let replace = |old: &str, start, end| {
            let document = Document::decode(old.as_bytes());
            let new = replace(&document, "x\ny", Range { start, end });
            String::from_utf8(new.encode().unwrap()).unwrap()
        };
        assert_eq!(replace("a\nb\nc\n", 0, -1), "x\ny\n");
        assert_eq!(replace("a\nb\nc\n", 1, 2), "a\nx\ny\nc\n");
        assert_eq!(replace("a\nb\nc\n", 1, -1), "a\nx\ny\n");
        assert_eq!(replace("a\nb\nc\n", 2, 1), "a\nb\nx\ny\nb\nc\n");
        assert_eq!(replace("a\nb\nc\n", 9, 10), "a\nb\nc\nx\ny\n");
        assert_eq!(replace("a\r\nb\r\n", 1, 2), "a\r\nx\r\ny\r\n");
        assert_eq!(replace("", 0, -1), "x\ny\n");
    }
}
