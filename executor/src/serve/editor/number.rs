//! Text with line numbers, as `cat -n` would print it, and its limit (spec 6.4, templates).

use std::fmt::Write as _;

/// Characters that are shown.
const MAX: usize = 16_000;

const TEXT_CUT: &str = "<response clipped><NOTE>Due to the max output limit, only part of this \
    file has been shown to you. You should retry this tool after you have searched inside the \
    file with `grep -n` in order to find the line numbers of what you are looking for.</NOTE>";

pub(super) const DIRECTORY_CUT: &str = "<response clipped><NOTE>Due to the max output limit, \
    only part of this directory has been shown to you. You should use `ls -la` instead to view \
    large directories incrementally.</NOTE>";

/// The header, and every line with its number.
pub(super) fn number(text: &str, what: &str, first: usize) -> String {
    let text = clip(text, TEXT_CUT);
    let mut shown = format!("Here's the result of running `cat -n` on {what}:\n");
    for (index, line) in text.split('\n').enumerate() {
        // Writing to a text cannot fail.
        let _ = writeln!(shown, "{:6}\t{line}", index + first);
    }
    shown
}

pub(super) fn clip(text: &str, notice: &str) -> String {
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}{notice}", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_in_six_columns() {
        let header = "Here's the result of running `cat -n` on /p:\n";
        let shown = |text, first| number(text, "/p", first).replacen(header, "", 1);
        assert_eq!(shown("", 1), "     1\t\n");
        assert_eq!(shown("a\n", 9), "     9\ta\n    10\t\n");
    }

    #[test]
    fn long_text_is_cut_before_it_is_numbered() {
        let text = "é".repeat(MAX);
        assert_eq!(clip(&text, TEXT_CUT), text);
        let cut = clip(&format!("{text}x"), TEXT_CUT);
        assert_eq!(cut, format!("{text}{TEXT_CUT}"));
    }
}
