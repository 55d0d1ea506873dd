//! A sheet of lines with a cursor: what a terminal keeps of a program's output.
//!
//! A line is as long as its text: a terminal of 1000 columns would fold it, which is undone here
//! before it happens. Memory is taken for what is written, not for the size of the terminal, and
//! bounded in lines and in characters.

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

#[derive(Debug)]
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
            Some(0) => self.row_mut(at).combine(column, character),
            Some(width) => {
                self.touch(at, column);
                self.row_mut(at).put(column, character, width == 2);
                self.advance(width);
            }
        }
    }

    pub(super) fn put_ascii(&mut self, text: &[u8]) {
        let (at, column) = (self.row, self.column);
        self.touch(at, column);
        self.row_mut(at).put_ascii(column, text);
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

    pub(super) fn tab(&mut self) {
        let last = self.fold + WIDTH - 1;
        let next = self.column + TAB - self.column % TAB;
        self.column = next.min(last.max(self.column));
    }

    pub(super) fn carriage_return(&mut self) {
        self.column = self.fold;
    }

    pub(super) fn backspace(&mut self) {
        self.column = self.column.saturating_sub(1).max(self.fold);
    }

    pub(super) fn line_feed(&mut self) {
        if self.rows.get(self.row).is_some_and(|row| row.len() > SHORT) {
            self.limit_cells();
        }
        // The terminal would be on a row of its own for what it has folded.
        self.unfold();
        if self.row + 1 == self.region.end {
            self.scroll_up(1);
        } else if self.row + 1 < HEIGHT {
            self.row += 1;
        }
    }

    pub(super) fn reverse_line_feed(&mut self) {
        if self.row == self.region.start {
            self.scroll_down(1);
        } else {
            self.row = self.row.saturating_sub(1);
        }
    }

    pub(super) fn up(&mut self, count: usize) {
        for _ in 0..count.min(HEIGHT) {
            if self.fold > 0 {
                self.fold -= WIDTH;
                self.column -= WIDTH;
            } else {
                self.row = self.row.saturating_sub(1);
            }
        }
    }

    pub(super) fn down(&mut self, count: usize) {
        self.unfold();
        self.row = (self.row + count).min(HEIGHT - 1);
    }

    pub(super) fn forward(&mut self, count: usize) {
        let last = self.fold + WIDTH - 1;
        self.column = (self.column + count).min(last);
    }

    pub(super) fn back(&mut self, count: usize) {
        let start = self.fold;
        self.column = self.column.saturating_sub(count).max(start);
    }

    pub(super) fn go_to_column(&mut self, column: usize) {
        self.column = self.fold + column.min(WIDTH - 1);
    }

    pub(super) fn go_to_row(&mut self, row: usize) {
        self.unfold();
        self.row = row.min(HEIGHT - 1);
    }

    pub(super) fn save_cursor(&mut self) {
        self.saved = (self.row, self.column, self.fold);
    }

    pub(super) fn restore_cursor(&mut self) {
        (self.row, self.column, self.fold) = self.saved;
    }

    /// Rows from 0, the last one exclusive.
    pub(super) fn set_region(&mut self, start: usize, end: usize) {
        let end = end.min(HEIGHT);
        if start + 1 < end {
            self.region = start..end;
            (self.row, self.column, self.fold) = (0, 0, 0);
        }
    }

    pub(super) fn erase_in_row(&mut self, what: usize) {
        let (at, column) = (self.row, self.column);
        let start = self.fold;
        match what {
            0 => self.change(at, column, |row| row.truncate(column)),
            1 => self.change(at, start, |row| row.erase(start..column + 1)),
            2 => self.change(at, start, |row| row.truncate(start)),
            _ => {}
        }
    }

    pub(super) fn erase_on_screen(&mut self, what: usize) {
        match what {
            0 => {
                self.erase_in_row(0);
                self.rows.truncate(self.row + 1);
            }
            1 => {
                self.touch(0, 0);
                self.rows
                    .iter_mut()
                    .take(self.row)
                    .for_each(|row| row.truncate(0));
                self.erase_in_row(1);
            }
            2 => self.clear_screen(),
            3 => self.forget_history(),
            _ => {}
        }
    }

    /// What was there goes the way of all lines that leave the screen.
    fn clear_screen(&mut self) {
        while self.rows.back().is_some_and(|row| row.len() == 0) {
            self.rows.pop_back();
        }
        if self.has_history {
            while !self.rows.is_empty() {
                self.remember_first();
            }
        }
        self.touch(0, 0);
        self.rows.clear();
    }

    fn forget_history(&mut self) {
        self.forgotten += self.history.len() as u64;
        self.history.clear();
        self.history_bytes = 0;
    }

    pub(super) fn insert_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        self.change(at, column, |row| row.insert(column, count.min(WIDTH)));
    }

    pub(super) fn remove_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        self.change(at, column, |row| {
            row.remove(column..column.saturating_add(count));
        });
    }

    pub(super) fn erase_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        self.change(at, column, |row| {
            row.erase(column..column.saturating_add(count));
        });
    }

    pub(super) fn insert_rows(&mut self, count: usize) {
        if self.region.contains(&self.row) {
            self.shift_down(self.row..self.region.end, count);
        }
    }

    pub(super) fn remove_rows(&mut self, count: usize) {
        if self.region.contains(&self.row) {
            self.shift_up(self.row..self.region.end, count);
        }
    }

    pub(super) fn scroll_up(&mut self, count: usize) {
        if self.region != (0..HEIGHT) || !self.has_history {
            return self.shift_up(self.region.clone(), count);
        }
        for _ in 0..count.min(HEIGHT) {
            self.remember_first();
        }
    }

    pub(super) fn scroll_down(&mut self, count: usize) {
        self.shift_down(self.region.clone(), count);
    }

    fn shift_up(&mut self, range: Range<usize>, count: usize) {
        self.touch(range.start, 0);
        for _ in 0..count.min(range.len()) {
            self.rows.remove(range.start);
            if self.rows.len() >= range.end {
                self.rows.insert(range.end - 1, Row::default());
            }
        }
    }

    fn shift_down(&mut self, range: Range<usize>, count: usize) {
        self.touch(range.start, 0);
        for _ in 0..count.min(range.len()) {
            if self.rows.len() >= range.end {
                self.rows.remove(range.end - 1);
            }
            if self.rows.len() > range.start {
                self.rows.insert(range.start, Row::default());
            }
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

    fn limit_cells(&mut self) {
        let mut cells: usize = self.rows.iter().map(Row::len).sum();
        while cells > MAX_CELLS && self.row > 0 {
            cells -= self.rows.front().map_or(0, Row::len);
            self.remember_first();
            self.row -= 1;
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
        if passed >= columns {
            return &text[at..];
        }
        passed += character.width().unwrap_or(0);
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(grid: &mut Grid, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => {
                    grid.carriage_return();
                    grid.line_feed();
                }
                '\r' => grid.carriage_return(),
                '\t' => grid.tab(),
                other => grid.put(other),
            }
        }
    }

    #[test]
    fn lines_are_overwritten_and_trimmed() {
        let mut grid = Grid::new(true);
        write(&mut grid, "10%\r100%  \n");
        write(&mut grid, "a\tb\n日本\r日\n");
        assert_eq!(grid.since_told(), "100%\na       b\n日本\n");
    }

    #[test]
    fn a_line_longer_than_the_terminal_is_one_line() {
        let mut grid = Grid::new(true);
        write(
            &mut grid,
            &("x".repeat(2500) + "\n" + &"y".repeat(1000) + "\rz\n"),
        );
        let text = grid.since_told();
        let expected = "x".repeat(2500) + "\nz" + &"y".repeat(999) + "\n";
        assert!(text == expected);
        // A carriage return goes to the start of the terminal's row, not of the line.
        write(&mut grid, &("a".repeat(1500) + "\rb"));
        assert!(
            grid.text()
                .ends_with(&("a".repeat(1000) + "b" + &"a".repeat(499) + "\n"))
        );
    }

    #[test]
    fn only_what_is_new_is_told() {
        let mut grid = Grid::new(true);
        write(&mut grid, "one\nname: ");
        grid.tell();
        assert_eq!(grid.since_told().trim(), "");
        write(&mut grid, "John\ntwo");
        assert_eq!(grid.since_told(), "John\ntwo\n");
        grid.tell();
        write(&mut grid, "\rTWO!");
        assert_eq!(grid.since_told(), "TWO!\n");
        grid.tell();
        grid.up(1);
        write(&mut grid, "\rName: ");
        assert_eq!(grid.since_told(), "Name: John\nTWO!\n");
    }

    #[test]
    fn a_long_text_keeps_its_end() {
        let mut grid = Grid::new(true);
        for number in 0..50_000 {
            write(&mut grid, &format!("Line {number}\n"));
            if number == 39_989 {
                grid.tell();
            }
        }
        assert!(grid.is_cut());
        let text = grid.since_told();
        assert!(text.starts_with("\nLine 39990\n"), "{}", &text[..50]);
        assert!(text.ends_with("Line 49999\n"));
        grid.told = (0, 0);
        let lines = grid.since_told().lines().count();
        assert!((10_001..=11_360).contains(&lines), "{lines}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut grid = Grid::new(true);
        grid.put('<');
        (0..3 * MAX_ROW / 100).for_each(|_| grid.put_ascii(&[b'x'; 100]));
        grid.put('>');
        let text = grid.text();
        assert!(text.len() <= MAX_ROW + 1);
        assert!(text.starts_with('<') && text.ends_with(">\n"));
        for _ in 0..100 {
            write(&mut grid, "\n");
            (0..9000).for_each(|_| grid.put_ascii(&[b'y'; 100]));
        }
        let cells: usize = grid.rows.iter().map(Row::len).sum();
        assert!(cells <= MAX_CELLS + MAX_ROW && grid.history_bytes <= MAX_HISTORY_BYTES);
    }
}
