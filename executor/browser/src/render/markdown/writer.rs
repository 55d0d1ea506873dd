//! Text in the making. Line ends, spaces and opening signs wait until a word follows them, so that
//! elements without text leave no trace.

use std::borrow::Cow;

use super::MAX_NESTING;

/// Opening sign of a link. Link texts are padded.
pub(super) const LINK: &str = "[ ";

#[derive(Default)]
pub(super) struct Writer {
    text: String,
    /// Line ends before the next word.
    breaks: usize,
    /// Space before the next word, unless it begins a line.
    has_space: bool,
    /// True if the current line has no word yet.
    is_line_start: bool,
    /// True in a table cell without a word: paragraphs in it begin in the same line.
    is_cell_start: bool,
    /// Signs of headings and list items before the next word.
    line_signs: Vec<Cow<'static, str>>,
    /// Opening signs before the next word, behind those of the line.
    signs: Vec<&'static str>,
    quotes: usize,
    preformatted: usize,
}

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }

    pub(super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.preformatted > 0 {
            return self.preformatted_text(text);
        }
        self.has_space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.word(word);
            self.has_space = true;
        }
        self.has_space &= text.ends_with(char::is_whitespace);
    }

    /// Writes all that waits, then the word.
    pub(super) fn word(&mut self, word: &str) {
        self.start_word();
        self.text.push_str(word);
    }

    pub(super) fn space(&mut self) {
        self.has_space = true;
    }

    /// Asks for at least so many line ends, unless a cell, heading or list item has just begun.
    pub(super) fn break_line(&mut self, count: usize) {
        if !self.is_cell_start && self.line_signs.is_empty() {
            self.breaks = self.breaks.max(count);
        }
    }

    /// Asks for one more line end, up to an empty line.
    pub(super) fn add_break(&mut self) {
        self.break_line((self.breaks + 1).min(2));
    }

    pub(super) fn open(&mut self, sign: &'static str) {
        if self.preformatted == 0 || sign == LINK {
            self.signs.push(sign);
        }
    }

    /// Ends what a sign has opened. Without a word in between the sign is taken back.
    pub(super) fn close(&mut self, sign: &str, end: &str) {
        if self.signs.last() == Some(&sign) {
            self.signs.pop();
        } else if self.preformatted == 0 {
            self.text.push_str(end);
        }
    }

    /// Ends a link. Links without text stay, as the target can be all that matters.
    pub(super) fn close_link(&mut self, target: &str) {
        if self.signs.last() == Some(&LINK) {
            self.signs.pop();
            self.word("[");
        }
        self.text.push_str(" ](");
        self.text
            .extend(target.trim().chars().filter(|c| !c.is_control()));
        self.text.push(')');
    }

    /// Begins a line with a sign.
    pub(super) fn open_line(&mut self, sign: &'static str) {
        self.line_signs.push(Cow::Borrowed(sign));
    }

    pub(super) fn close_line(&mut self, sign: &str) {
        if self.line_signs.last().is_some_and(|last| last == sign) {
            self.line_signs.pop();
        }
    }

    /// Begins a list item. The item around it has no text of its own if its sign still waits.
    pub(super) fn open_item(&mut self, sign: String) {
        self.close_item();
        self.line_signs.push(Cow::Owned(sign));
    }

    pub(super) fn close_item(&mut self) {
        if matches!(self.line_signs.last(), Some(Cow::Owned(_))) {
            self.line_signs.pop();
        }
    }

    pub(super) fn open_quote(&mut self) {
        self.break_line(2);
        self.quotes += 1;
    }

    pub(super) fn close_quote(&mut self) {
        self.quotes -= 1;
        self.break_line(2);
    }

    pub(super) fn open_preformatted(&mut self) {
        self.break_line(2);
        self.preformatted += 1;
    }

    pub(super) fn close_preformatted(&mut self) {
        self.preformatted -= 1;
        self.break_line(2);
    }

    pub(super) fn open_cell(&mut self, is_first: bool) {
        if !is_first {
            self.has_space = true;
            self.word("|");
            self.has_space = true;
        }
        self.is_cell_start = true;
    }

    /// Ends a cell, whose last paragraph does not end the line.
    pub(super) fn close_cell(&mut self) {
        if !std::mem::take(&mut self.is_cell_start) {
            self.breaks = 0;
        }
    }

    pub(super) fn close_row(&mut self) {
        self.is_cell_start = false;
        self.break_line(1);
    }

    fn preformatted_text(&mut self, text: &str) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 && self.breaks == 0 && !self.text.is_empty() {
                self.text.push('\n');
                self.is_line_start = true;
            }
            let line = line.trim_end_matches('\r');
            if !line.is_empty() {
                self.word(line);
            }
        }
    }

    fn start_word(&mut self) {
        if self.text.is_empty() {
            self.is_line_start = true;
        } else if self.breaks > 0 {
            let ends = self.text.bytes().rev().take(2);
            let present = ends.take_while(|byte| *byte == b'\n').count();
            self.text.extend(std::iter::repeat_n(
                '\n',
                self.breaks.saturating_sub(present),
            ));
            self.is_line_start = true;
        }
        if self.is_line_start {
            self.text
                .extend(std::iter::repeat_n("> ", self.quotes.min(MAX_NESTING)));
            if self.preformatted > 0 {
                self.text.push_str("    ");
            }
        } else if self.has_space {
            self.text.push(' ');
        }
        (self.breaks, self.has_space) = (0, false);
        (self.is_line_start, self.is_cell_start) = (false, false);
        self.text.extend(self.line_signs.drain(..));
        self.text.extend(self.signs.drain(..));
    }
}
