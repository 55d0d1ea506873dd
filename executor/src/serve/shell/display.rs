//! Interprets control characters and escape sequences: the main screen, the alternate screen of
//! full-screen programs, and replies to queries of programs.

#[cfg(any(test, feature = "fuzzing"))]
mod properties;

use super::grid::{Grid, HEIGHT, WIDTH};

/// Bytes of replies that no program has read yet.
const MAX_REPLIES: usize = 1024;
/// Upper bound of repeat counts: no screen is larger.
const MAX_COUNT: usize = 1000;

/// Line-drawing characters of the VT100, from `j` on.
const DRAWING: &str = "┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Display {
    main: Grid,
    alternate: Option<Grid>,
    /// True for each of the two character sets that draws lines.
    drawing: [bool; 2],
    /// True while the second character set is in use.
    shifted: bool,
    /// True if programs expect the application sequences of cursor keys.
    pub(super) application_cursor: bool,
    last: char,
    /// Replies to queries of programs, to be typed.
    pub(super) replies: Vec<u8>,
    /// True if a response has contained some of the text.
    pub(super) has_reported: bool,
}

impl Display {
    pub(super) fn new() -> Self {
        Self {
            main: Grid::new(true),
            alternate: None,
            drawing: [false; 2],
            shifted: false,
            application_cursor: false,
            last: ' ',
            replies: Vec::new(),
            has_reported: false,
        }
    }

    /// Clears everything except pending replies.
    pub(super) fn clear(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        *self = Self {
            replies,
            ..Self::new()
        };
    }

    /// True if the start of the text was dropped.
    pub(super) fn is_cut(&self) -> bool {
        self.main.is_truncated
    }

    /// Text that no response has contained; for the alternate screen, all of it if it changed.
    pub(super) fn unreported_text(&self) -> String {
        match &self.alternate {
            None => self.main.unreported_text(),
            Some(grid) if grid.changed => grid.text(),
            Some(_) => String::new(),
        }
    }

    pub(super) fn mark_reported(&mut self) {
        self.has_reported = true;
        self.grid().mark_reported();
    }

    /// Returns to the main screen when a full-screen program has ended.
    pub(super) fn leave_alternate(&mut self) {
        self.alternate = None;
        self.drawing = [false; 2];
        self.shifted = false;
        self.application_cursor = false;
    }

    fn grid(&mut self) -> &mut Grid {
        self.alternate.as_mut().unwrap_or(&mut self.main)
    }

    pub(super) fn put(&mut self, character: char) {
        self.last = character;
        self.grid().put(character);
    }

    /// Writes text of printable ASCII only.
    pub(super) fn put_ascii(&mut self, text: &[u8]) {
        if self.drawing[usize::from(self.shifted)] {
            for byte in text {
                self.put(drawn(*byte));
            }
            return;
        }
        self.last = text.last().map_or(' ', |byte| char::from(*byte));
        self.grid().put_ascii(text);
    }

    pub(super) fn control(&mut self, byte: u8) {
        match byte {
            0x08 => self.grid().backspace(),
            b'\t' => self.grid().tab(),
            b'\n' | 0x0b | 0x0c => self.grid().line_feed(),
            b'\r' => self.grid().carriage_return(),
            0x0e => self.shifted = true,
            0x0f => self.shifted = false,
            _ => {}
        }
    }

    /// Handles `ESC` and one more byte.
    pub(super) fn escape(&mut self, byte: u8) {
        match byte {
            b'7' => self.grid().save_cursor(),
            b'8' => self.grid().restore_cursor(),
            b'D' => self.grid().line_feed(),
            b'E' => {
                self.grid().carriage_return();
                self.grid().line_feed();
            }
            b'M' => self.grid().reverse_line_feed(),
            b'c' => {
                self.leave_alternate();
                self.main.erase_on_screen(2);
                self.main.go_to_row(0);
                self.main.go_to_column(0);
            }
            _ => {}
        }
    }

    /// Selects a character set: `ESC ( B` and similar sequences.
    pub(super) fn designate(&mut self, set: u8, byte: u8) {
        match set {
            b'(' => self.drawing[0] = byte == b'0',
            b')' => self.drawing[1] = byte == b'0',
            _ => {}
        }
    }

    /// Handles `ESC [ parameters byte`.
    pub(super) fn sequence(&mut self, parameters: &[u8], byte: u8) {
        match parameters.first() {
            Some(b'?') => self.mode(&parameters[1..], byte),
            Some(b'<'..=b'>') => {}
            _ if parameters.iter().any(|byte| matches!(byte, b' '..=b'/')) => {}
            _ => self.standard(&numbers(parameters), byte),
        }
    }

    fn standard(&mut self, numbers: &[usize], byte: u8) {
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let count = number(0).clamp(1, MAX_COUNT);
        let position = |at: usize| number(at).max(1) - 1;
        let last = self.last;
        let grid = self.grid();
        match byte {
            b'A' => grid.up(count),
            b'B' | b'e' => grid.down(count),
            b'C' | b'a' => grid.forward(count),
            b'D' => grid.back(count),
            b'E' | b'F' => {
                let go = if byte == b'E' { Grid::down } else { Grid::up };
                go(grid, count);
                grid.carriage_return();
            }
            b'G' | b'`' => grid.go_to_column(position(0)),
            b'H' | b'f' => {
                grid.go_to_row(position(0));
                grid.go_to_column(position(1));
            }
            b'd' => grid.go_to_row(position(0)),
            b'J' => grid.erase_on_screen(number(0)),
            b'K' => grid.erase_in_row(number(0)),
            b'L' => grid.insert_rows(count),
            b'M' => grid.remove_rows(count),
            b'P' => grid.remove_cells(count),
            b'@' => grid.insert_cells(count),
            b'X' => grid.erase_cells(count),
            b'Z' => grid.back_tab(count),
            b'S' => grid.scroll_up(count),
            b'T' => grid.scroll_down(count),
            b'b' => (0..count).for_each(|_| grid.put(last)),
            b'r' => grid.set_region(position(0), if number(1) == 0 { HEIGHT } else { number(1) }),
            b's' => grid.save_cursor(),
            b'u' => grid.restore_cursor(),
            b'c' => self.reply("\x1b[?1;2c"),
            b'n' => self.report(number(0)),
            _ => {}
        }
    }

    fn mode(&mut self, parameters: &[u8], byte: u8) {
        let on = match byte {
            b'h' => true,
            b'l' => false,
            _ => return,
        };
        for mode in numbers(parameters) {
            match (mode, on) {
                (1, _) => self.application_cursor = on,
                (47 | 1047 | 1049, true) if self.alternate.is_none() => {
                    self.main.save_cursor();
                    self.alternate = Some(Grid::new(false));
                }
                (47 | 1047 | 1049, false) if self.alternate.is_some() => {
                    self.leave_alternate();
                    self.main.restore_cursor();
                }
                (1048, true) => self.grid().save_cursor(),
                (1048, false) => self.grid().restore_cursor(),
                _ => {}
            }
        }
    }

    fn report(&mut self, query: usize) {
        let (row, column) = self.grid().cursor();
        match query {
            5 => self.reply("\x1b[0n"),
            6 => self.reply(&format!("\x1b[{};{}R", row + 1, column.min(WIDTH - 1) + 1)),
            _ => {}
        }
    }

    fn reply(&mut self, text: &str) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.extend_from_slice(text.as_bytes());
        }
    }
}

/// Parses the parameters; absent ones are 0.
fn numbers(parameters: &[u8]) -> Vec<usize> {
    let fields = parameters.split(|byte| matches!(byte, b';' | b':'));
    let number = |field: &[u8]| {
        let digits = std::str::from_utf8(field).unwrap_or_default();
        digits.parse::<u16>().map_or(0, usize::from)
    };
    fields.map(number).collect()
}

fn drawn(byte: u8) -> char {
    let drawn = byte
        .checked_sub(b'j')
        .and_then(|at| DRAWING.chars().nth(at.into()));
    drawn.unwrap_or(match byte {
        b'`' => '◆',
        b'a' => '▒',
        b'f' => '°',
        b'g' => '±',
        other => char::from(other),
    })
}
