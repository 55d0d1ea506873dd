//! Which lines a range selects (spec 6.1, 6.3).

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
pub(super) fn replace(old: &str, content: &str, range: Range) -> String {
    let lines: Vec<&str> = old.split_inclusive('\n').collect();
    let mut text = lines[..clamp(range.start, lines.len())].concat();
    for piece in content.split('\n') {
        text.push_str(piece);
        text.push('\n');
    }
    if range.end != -1 {
        text.push_str(&lines[clamp(range.end, lines.len())..].concat());
    }
    text
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
        let replace = |start, end| replace("a\nb\nc\n", "x\ny", Range { start, end });
        assert_eq!(replace(0, -1), "x\ny\n");
        assert_eq!(replace(1, 2), "a\nx\ny\nc\n");
        assert_eq!(replace(1, -1), "a\nx\ny\n");
    }
}
