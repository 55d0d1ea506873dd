//! Lines and cursor of a terminal screen.
//!
//! A line is as long as its text: lines are not folded at the 1000 columns that programs see.
//! Memory depends on the text, not on the size of the terminal, and is bounded in lines and in
//! characters.

mod edit;
#[cfg(any(test, feature = "fuzzing"))]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

use super::row::Row;

/// Columns and rows that programs see (`docs/specs/executor.md`, section 4.1).
pub(super) const SIZE: u16 = 1000;
pub(super) const WIDTH: usize = SIZE as usize;
pub(super) const HEIGHT: usize = SIZE as usize;

/// Lines above the screen; older ones are dropped. Together with the screen, clients rely on
/// 10 001 to 11 360 lines (`docs/specs/executor.md`, section 4.9).
const MAX_HISTORY: usize = 9_500;
/// Bytes of the lines above the screen.
const MAX_HISTORY_BYTES: usize = 16 << 20;
/// Characters on the screen.
const MAX_CELLS: usize = 4 << 20;
/// Lines up to this length are not counted: a screen full of them is below that limit.
const SHORT: usize = MAX_CELLS / HEIGHT;
/// Characters kept of one line; a part of the middle of a longer line is dropped.
const MAX_ROW: usize = 1000 * WIDTH;
const DROPPED_OF_ROW: Range<usize> = 250 * WIDTH..500 * WIDTH;
const TAB: usize = 8;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Grid {
    /// Lines that have scrolled off the top of the screen.
    history: VecDeque<String>,
    history_bytes: usize,
    dropped_lines: u64,
    /// True if the start of the text was dropped.
    pub(super) is_truncated: bool,
    has_history: bool,
    rows: VecDeque<Row>,
    row: usize,
    column: usize,
    /// First column of the terminal row that the cursor is on: a terminal folds the line there.
    fold: usize,
    saved: (usize, usize, usize),
    /// Scroll region.
    region: Range<usize>,
    /// End of the reported text: line number since the start, and column.
    reported_to: (u64, usize),
    /// True if the grid has changed since then.
    pub(super) changed: bool,
}

impl Grid {
    pub(super) fn new(has_history: bool) -> Self {
        Self {
            has_history,
            region: 0..HEIGHT,
            ..Self::default()
        }
    }

    /// Row and column, from 0.
    pub(super) fn cursor(&self) -> (usize, usize) {
        (self.row, self.column - self.fold)
    }

    pub(super) fn put(&mut self, character: char) {
        let column = self.column;
        match character.width() {
            None => {}
            Some(0) => {
                self.invalidate_from(self.row, column.saturating_sub(1));
                self.grow(|row| row.combine(column, character));
            }
            Some(width) => {
                self.invalidate_from(self.row, column);
                self.grow(|row| row.put(column, character, width == 2));
                self.advance(width);
            }
        }
    }

    pub(super) fn put_ascii(&mut self, text: &[u8]) {
        let column = self.column;
        self.invalidate_from(self.row, column);
        self.grow(|row| row.put_ascii(column, text));
        self.advance(text.len());
    }

    fn advance(&mut self, width: usize) {
        self.column += width;
        // The cursor leaves a full row only with the next character.
        while self.column - self.fold > WIDTH {
            self.fold += WIDTH;
        }
        while self.column > MAX_ROW {
            self.invalidate_from(self.row, 0);
            self.row_mut().remove(DROPPED_OF_ROW);
            self.column -= DROPPED_OF_ROW.len();
            self.fold -= DROPPED_OF_ROW.len();
        }
    }

    /// Text after the reported text, each line without trailing blanks.
    pub(super) fn unreported_text(&self) -> String {
        let (line, column) = self.reported_to;
        let first = usize::try_from(line.saturating_sub(self.dropped_lines)).unwrap_or(usize::MAX);
        let mut text = String::new();
        for (index, content) in self.history.iter().enumerate().skip(first) {
            let whole = self.dropped_lines + index as u64 != line;
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

    pub(super) fn text(&self) -> String {
        let rows = self.rows.iter().map(|row| row.text(0) + "\n");
        rows.collect()
    }

    pub(super) fn mark_reported(&mut self) {
        self.changed = false;
        let last = self.rows.len().saturating_sub(1);
        let column = self.rows.get(last).map_or(0, Row::len);
        self.reported_to = (self.number(last), column);
    }

    /// Moves the cursor to the same column of the unfolded line.
    fn unfold(&mut self) {
        self.column -= self.fold;
        self.fold = 0;
    }

    /// Line number since the start of a row on the screen.
    fn number(&self, row: usize) -> u64 {
        self.dropped_lines + (self.history.len() + row) as u64
    }

    /// The row of the cursor.
    fn row_mut(&mut self) -> &mut Row {
        if self.rows.len() <= self.row {
            self.rows.resize_with(self.row + 1, Row::default);
        }
        &mut self.rows[self.row]
    }

    /// Changes the row of the cursor from a column on, if there is text.
    fn change(&mut self, column: usize, change: impl FnOnce(&mut Row)) {
        if self.row < self.rows.len() {
            self.invalidate_from(self.row, column);
            change(&mut self.rows[self.row]);
        }
    }

    /// A line that changes after it was reported is reported again, with all lines after it.
    fn invalidate_from(&mut self, row: usize, column: usize) {
        self.changed = true;
        let number = self.number(row);
        if (number, column) < self.reported_to {
            self.reported_to = (number, 0);
        }
    }

    /// Writes to the row of the cursor. Checks the screen's size each time it grows by one width.
    fn grow(&mut self, change: impl FnOnce(&mut Row)) {
        let row = self.row_mut();
        let before = row.size();
        change(row);
        let after = row.size();
        if after > SHORT && after / WIDTH != before / WIDTH {
            self.limit_cells();
        }
    }

    /// Drops the oldest rows, or the last ones if the cursor is at the top.
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
            self.dropped_lines += 1;
            self.is_truncated = true;
        }
    }
}

/// Returns the text after the first `columns` columns.
fn after(text: &str, columns: usize) -> &str {
    let mut passed = 0;
    for (at, character) in text.char_indices() {
        let width = character.width().unwrap_or(0);
        // A combining character belongs to the column before.
        if passed >= columns && width > 0 {
            return &text[at..];
        }
        passed += width;
    }
    ""
}
