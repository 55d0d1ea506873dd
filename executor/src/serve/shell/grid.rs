//! A sheet of lines with a cursor: what a terminal keeps of a program's output.
//!
//! A line is as long as its text: a terminal of 1000 columns would fold it, which is undone here
//! before it happens. Memory is taken for what is written, not for the size of the terminal, and
//! bounded in lines and in characters.

#[cfg(any(test, feature = "fuzzing"))]
mod check;
mod cursor;
mod edit;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

use super::row::Row;

/// What programs are told, columns and rows (spec 4.1).
pub(super) const SIZE: u16 = 1000;
pub(super) const WIDTH: usize = SIZE as usize;
pub(super) const HEIGHT: usize = SIZE as usize;

/// Lines above the screen; older ones are dropped. With the screen's, clients rely on 10 001 to
/// 11 360 (spec 4.9).
const MAX_HISTORY: usize = 9_500;
/// Bytes of the lines above the screen.
const MAX_HISTORY_BYTES: usize = 16 << 20;
/// Characters on the screen.
const MAX_CELLS: usize = 4 << 20;
/// Lines up to this length need no count: a screen full of them is below that limit.
const SHORT: usize = MAX_CELLS / HEIGHT;
/// Characters kept of one line; beyond, a part of its middle is dropped.
const MAX_ROW: usize = 1000 * WIDTH;
const DROPPED_OF_ROW: Range<usize> = 250 * WIDTH..500 * WIDTH;
const TAB: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Lines that have left the screen at its top.
    history: VecDeque<String>,
    history_bytes: usize,
    /// Lines that have left the history.
    forgotten: u64,
    cut: bool,
    has_history: bool,
    rows: VecDeque<Row>,
    row: usize,
    column: usize,
    /// Column at which the terminal's row begins that the cursor is on: lines are folded there.
    fold: usize,
    saved: (usize, usize, usize),
    /// Rows that scroll.
    region: Range<usize>,
    /// Up to where the text has been told: line number since the start, and column.
    told: (u64, usize),
    /// Something has changed since then.
    changed: bool,
}

impl Grid {
    pub(super) fn new(has_history: bool) -> Self {
        Self {
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: 0,
            cut: false,
            has_history,
            rows: VecDeque::new(),
            row: 0,
            column: 0,
            fold: 0,
            saved: (0, 0, 0),
            region: 0..HEIGHT,
            told: (0, 0),
            changed: false,
        }
    }

    /// Whether the start of the text is lost.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Row and column, from 0.
    pub(super) fn cursor(&self) -> (usize, usize) {
        (self.row, self.column - self.fold)
    }

    pub(super) fn put(&mut self, character: char) {
        let (at, column) = (self.row, self.column);
        match character.width() {
            None => {}
            Some(0) => {
                self.touch(at, column.saturating_sub(1));
                self.grow(at, |row| row.combine(column, character));
            }
            Some(width) => {
                self.touch(at, column);
                self.grow(at, |row| row.put(column, character, width == 2));
                self.advance(width);
            }
        }
    }

    pub(super) fn put_ascii(&mut self, text: &[u8]) {
        let (at, column) = (self.row, self.column);
        self.touch(at, column);
        self.grow(at, |row| row.put_ascii(column, text));
        self.advance(text.len());
    }

    fn advance(&mut self, width: usize) {
        self.column += width;
        // A full row is left only when more comes.
        while self.column - self.fold > WIDTH {
            self.fold += WIDTH;
        }
        while self.column > MAX_ROW {
            let at = self.row;
            self.touch(at, 0);
            self.row_mut(at).remove(DROPPED_OF_ROW);
            self.column -= DROPPED_OF_ROW.len();
            self.fold -= DROPPED_OF_ROW.len();
        }
    }

    /// The text after what has been told, each line without trailing blanks.
    pub(super) fn since_told(&self) -> String {
        let (line, column) = self.told;
        let first = usize::try_from(line.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        let mut text = String::new();
        for (index, content) in self.history.iter().enumerate().skip(first) {
            let whole = self.forgotten + index as u64 != line;
            text.push_str(if whole {
                content
            } else {
                after(content, column)
            });
            text.push('\n');
        }
        let skipped = first.saturating_sub(self.history.len());
        for (index, row) in self.rows.iter().enumerate().skip(skipped) {
            let whole = self.number(index) != line;
            text.push_str(&row.text(if whole { 0 } else { column }));
            text.push('\n');
        }
        text
    }

    /// All that is on the screen.
    pub(super) fn text(&self) -> String {
        let rows = self.rows.iter().map(|row| row.text(0) + "\n");
        rows.collect()
    }

    /// Everything there is now has been told.
    pub(super) fn tell(&mut self) {
        self.changed = false;
        let last = self.rows.len().saturating_sub(1);
        let column = self.rows.get(last).map_or(0, Row::len);
        self.told = (self.number(last), column);
    }

    /// Lines begin at the first column.
    fn unfold(&mut self) {
        self.column -= self.fold;
        self.fold = 0;
    }

    /// Since the start, of a row on the screen.
    fn number(&self, row: usize) -> u64 {
        self.forgotten + (self.history.len() + row) as u64
    }

    fn row_mut(&mut self, at: usize) -> &mut Row {
        if self.rows.len() <= at {
            self.rows.resize_with(at + 1, Row::default);
        }
        &mut self.rows[at]
    }

    fn change(&mut self, at: usize, column: usize, change: impl FnOnce(&mut Row)) {
        if at < self.rows.len() {
            self.touch(at, column);
            change(&mut self.rows[at]);
        }
    }

    /// A line that changes after it was told is told again, and all after it.
    fn touch(&mut self, row: usize, column: usize) {
        self.changed = true;
        let number = self.number(row);
        if (number, column) < self.told {
            self.told = (number, 0);
        }
    }

    /// Changes the cursor's row, and looks at the whole screen whenever a long row has become
    /// longer by so much.
    fn grow(&mut self, at: usize, change: impl FnOnce(&mut Row)) {
        let row = self.row_mut(at);
        let before = row.size();
        change(row);
        let after = row.size();
        if after > SHORT && after / WIDTH != before / WIDTH {
            self.limit_cells();
        }
    }

    /// The oldest go, or if the program is at the top, those farthest below.
    fn limit_cells(&mut self) {
        let mut cells: usize = self.rows.iter().map(Row::size).sum();
        while cells > MAX_CELLS && self.row > 0 {
            cells -= self.rows.front().map_or(0, Row::size);
            self.remember_first();
            self.row -= 1;
        }
        while cells > MAX_CELLS && self.rows.len() > 1 {
            cells -= self.rows.pop_back().map_or(0, |row| row.size());
        }
    }

    fn remember_first(&mut self) {
        let text = self
            .rows
            .pop_front()
            .map_or_else(String::new, |row| row.text(0));
        self.changed = true;
        if !self.has_history {
            return;
        }
        self.history_bytes += text.len();
        self.history.push_back(text);
        while self.history.len() > MAX_HISTORY || self.history_bytes > MAX_HISTORY_BYTES {
            let Some(oldest) = self.history.pop_front() else {
                break;
            };
            self.history_bytes -= oldest.len();
            self.forgotten += 1;
            self.cut = true;
        }
    }
}

/// What follows the first `columns` columns.
fn after(text: &str, columns: usize) -> &str {
    let mut passed = 0;
    for (at, character) in text.char_indices() {
        let width = character.width().unwrap_or(0);
        // An accent belongs to the column before.
        if passed >= columns && width > 0 {
            return &text[at..];
        }
        passed += width;
    }
    ""
}
