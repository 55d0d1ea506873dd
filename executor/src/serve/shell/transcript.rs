//! The text a command has written, as lines, bounded in lines and in bytes.
//!
//! Of what a terminal does with text only the simplest is done here: returning to the start of the
//! line and overwriting it, as progress bars do.

use std::collections::VecDeque;

/// Lines kept; older ones are dropped. Clients rely on 10 001 to 11 360 (spec 4.9).
pub(super) const MAX_LINES: usize = 10_500;

/// Bytes kept in finished lines.
const MAX_BYTES: usize = 16 << 20;

/// Characters kept of one line; beyond, its middle is dropped.
const MAX_LINE_CHARS: usize = 1 << 20;

const TAB: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Transcript {
    lines: VecDeque<String>,
    bytes: usize,
    /// Finished lines that are no longer kept.
    dropped: u64,
    line: Vec<char>,
    cursor: usize,
    /// Up to where the text has been reported: line number since the start, and column.
    mark: (u64, usize),
}

impl Transcript {
    pub(super) fn put(&mut self, character: char) {
        if self.cursor < self.line.len() {
            self.line[self.cursor] = character;
            self.touch_line();
        } else {
            self.line.push(character);
        }
        self.cursor += 1;
        if self.line.len() > MAX_LINE_CHARS {
            self.line.drain(MAX_LINE_CHARS / 4..MAX_LINE_CHARS / 2);
            self.cursor = self.line.len();
            self.touch_line();
        }
    }

    pub(super) fn tab(&mut self) {
        for _ in 0..TAB - self.cursor % TAB {
            self.put(' ');
        }
    }

    pub(super) fn carriage_return(&mut self) {
        self.cursor = 0;
    }

    pub(super) fn backspace(&mut self) {
        self.cursor = self.cursor.saturating_sub(1);
    }

    pub(super) fn newline(&mut self) {
        let text: String = self.line.drain(..).collect();
        self.cursor = 0;
        self.bytes += text.len();
        self.lines.push_back(text);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }

    pub(super) fn erase_to_end_of_line(&mut self) {
        if self.cursor < self.line.len() {
            self.line.truncate(self.cursor);
            self.touch_line();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the start of the text is lost.
    pub(super) fn is_cut(&self) -> bool {
        self.dropped > 0
    }

    /// Whether some of the text has been reported before.
    pub(super) fn is_marked(&self) -> bool {
        self.mark != (0, 0)
    }

    pub(super) fn mark(&mut self) {
        self.mark = (self.current(), self.line.len());
    }

    /// The text after the mark, each line without trailing blanks.
    pub(super) fn since_mark(&self) -> String {
        let (line, column) = self.mark;
        let skip = usize::try_from(line.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let current: String = self.line.iter().collect();
        let mut text = String::new();
        let kept = self.lines.iter().map(String::as_str);
        for (index, content) in kept.chain([current.as_str()]).enumerate().skip(skip) {
            let reported = if self.dropped + index as u64 == line {
                column
            } else {
                0
            };
            let from = content
                .char_indices()
                .nth(reported)
                .map_or(content.len(), |(at, _)| at);
            text.push_str(content[from..].trim_end());
            text.push('\n');
        }
        text
    }

    fn current(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }

    /// A line that changes after it was reported is reported again.
    fn touch_line(&mut self) {
        if self.mark.0 == self.current() {
            self.mark.1 = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(transcript: &mut Transcript, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => transcript.newline(),
                '\r' => transcript.carriage_return(),
                '\t' => transcript.tab(),
                other => transcript.put(other),
            }
        }
    }

    #[test]
    fn lines_are_overwritten_and_trimmed() {
        let mut transcript = Transcript::default();
        write(&mut transcript, "10%\r100%  \r\na\tb\n");
        assert_eq!(transcript.since_mark(), "100%\na       b\n\n");
    }

    #[test]
    fn only_what_is_new_since_the_mark_is_told() {
        let mut transcript = Transcript::default();
        write(&mut transcript, "one\nname: ");
        transcript.mark();
        write(&mut transcript, "John\ntwo");
        assert_eq!(transcript.since_mark(), "John\ntwo\n");
        transcript.mark();
        write(&mut transcript, "\rTWO!");
        assert_eq!(transcript.since_mark(), "TWO!\n");
    }

    #[test]
    fn a_long_text_keeps_its_end() {
        let mut transcript = Transcript::default();
        for number in 0..50_000 {
            write(&mut transcript, &format!("Line {number}\n"));
        }
        assert!(transcript.is_cut());
        let text = transcript.since_mark();
        assert!(text.starts_with("Line 39500\n"));
        assert!(text.ends_with("Line 49999\n\n"));
    }

    #[test]
    fn one_endless_line_is_bounded() {
        let mut transcript = Transcript::default();
        transcript.put('<');
        (0..3 * MAX_LINE_CHARS).for_each(|_| transcript.put('x'));
        transcript.put('>');
        let text = transcript.since_mark();
        assert!(text.len() <= MAX_LINE_CHARS + 1);
        assert!(text.starts_with('<') && text.ends_with(">\n"));
    }
}
