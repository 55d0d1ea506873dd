//! Text with line numbers, as `cat -n` prints it, and its limit (`docs/specs/executor.md`,
//! section 6.4, rule 3).

use std::fmt::Write as _;

/// Longest text that is shown, in characters.
const MAX_CHARS: usize = 16_000;

const FILE_CLIPPED_NOTICE: &str = "<response clipped><NOTE>Due to the max output limit, only part of this \
    file has been shown to you. You should retry this tool after you have searched inside the \
    file with `grep -n` in order to find the line numbers of what you are looking for.</NOTE>";

pub(super) const DIRECTORY_CLIPPED_NOTICE: &str = "<response clipped><NOTE>Due to the max output limit, \
    only part of this directory has been shown to you. You should use `ls -la` instead to view \
    large directories incrementally.</NOTE>";

/// Formats the header and every line with its number.
pub(super) fn number(text: &str, subject: &str, first: usize) -> String {
    let text = clip(text, FILE_CLIPPED_NOTICE);
    let mut shown = format!("Here's the result of running `cat -n` on {subject}:\n");
    for (index, line) in text.split('\n').enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(shown, "{:6}\t{line}", index + first);
    }
    shown
}

pub(super) fn clip(text: &str, notice: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}{notice}", &text[..end]),
        None => text.to_owned(),
    }
}
