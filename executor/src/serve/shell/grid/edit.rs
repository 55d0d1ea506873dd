//! Moves the cursor, sets the scroll region, and erases, inserts and removes cells and lines.

use std::ops::Range;

use super::{Grid, HEIGHT, Row, TAB, WIDTH};

impl Grid {
    pub(in crate::serve::shell) fn tab(&mut self) {
        let last = self.fold + WIDTH - 1;
        let next = self.column + TAB - self.column % TAB;
        self.column = next.min(last.max(self.column));
    }

    pub(in crate::serve::shell) fn back_tab(&mut self, count: usize) {
        let column = self.column - self.fold;
        let stop = column.div_ceil(TAB).saturating_sub(count) * TAB;
        self.go_to_column(stop);
    }

    pub(in crate::serve::shell) fn carriage_return(&mut self) {
        self.column = self.fold;
    }

    pub(in crate::serve::shell) fn backspace(&mut self) {
        self.column = self.column.saturating_sub(1).max(self.fold);
    }

    pub(in crate::serve::shell) fn line_feed(&mut self) {
        // A terminal would be on a row of its own for the folded part.
        self.unfold();
        if self.row + 1 == self.region.end {
            self.scroll_up(1);
        } else if self.row + 1 < HEIGHT {
            self.row += 1;
        }
    }

    pub(in crate::serve::shell) fn reverse_line_feed(&mut self) {
        if self.row == self.region.start {
            self.scroll_down(1);
        } else {
            self.row = self.row.saturating_sub(1);
        }
    }

    pub(in crate::serve::shell) fn up(&mut self, count: usize) {
        for _ in 0..count.min(HEIGHT) {
            if self.fold > 0 {
                self.fold -= WIDTH;
                self.column -= WIDTH;
            } else {
                self.row = self.row.saturating_sub(1);
            }
        }
    }

    pub(in crate::serve::shell) fn down(&mut self, count: usize) {
        self.unfold();
        self.row = (self.row + count).min(HEIGHT - 1);
    }

    pub(in crate::serve::shell) fn forward(&mut self, count: usize) {
        let last = self.fold + WIDTH - 1;
        self.column = (self.column + count).min(last);
    }

    pub(in crate::serve::shell) fn back(&mut self, count: usize) {
        let start = self.fold;
        self.column = self.column.saturating_sub(count).max(start);
    }

    pub(in crate::serve::shell) fn go_to_column(&mut self, column: usize) {
        self.column = self.fold + column.min(WIDTH - 1);
    }

    pub(in crate::serve::shell) fn go_to_row(&mut self, row: usize) {
        self.unfold();
        self.row = row.min(HEIGHT - 1);
    }

    pub(in crate::serve::shell) fn save_cursor(&mut self) {
        self.saved = (self.row, self.column, self.fold);
    }

    pub(in crate::serve::shell) fn restore_cursor(&mut self) {
        (self.row, self.column, self.fold) = self.saved;
    }

    /// Sets the scroll region: rows from 0, the last one exclusive.
    pub(in crate::serve::shell) fn set_region(&mut self, start: usize, end: usize) {
        let end = end.min(HEIGHT);
        if start + 1 < end {
            self.region = start..end;
            (self.row, self.column, self.fold) = (0, 0, 0);
        }
    }

    pub(in crate::serve::shell) fn erase_in_row(&mut self, part: usize) {
        let (start, column) = (self.fold, self.column);
        match part {
            0 => self.change(column, |row| row.truncate(column)),
            1 => self.change(start, |row| row.erase(start..column + 1)),
            2 => self.change(start, |row| row.truncate(start)),
            _ => {}
        }
    }

    pub(in crate::serve::shell) fn erase_on_screen(&mut self, part: usize) {
        match part {
            0 => {
                self.erase_in_row(0);
                self.rows.truncate(self.row + 1);
            }
            1 => {
                self.invalidate_from(0, 0);
                for row in self.rows.iter_mut().take(self.row) {
                    row.truncate(0);
                }
                self.erase_in_row(1);
            }
            2 => self.clear_screen(),
            3 => self.forget_history(),
            _ => {}
        }
    }

    /// Clears the screen. Its lines move to the history.
    fn clear_screen(&mut self) {
        while self.rows.back().is_some_and(|row| row.len() == 0) {
            self.rows.pop_back();
        }
        if self.has_history {
            while !self.rows.is_empty() {
                self.remember_first();
            }
        }
        self.invalidate_from(0, 0);
        self.rows.clear();
    }

    fn forget_history(&mut self) {
        self.dropped_lines += self.history.len() as u64;
        self.history.clear();
        self.history_bytes = 0;
    }

    pub(in crate::serve::shell) fn insert_cells(&mut self, count: usize) {
        let (column, end) = (self.column, self.fold + WIDTH);
        self.change(column, |row| row.insert(column, count, end));
    }

    pub(in crate::serve::shell) fn remove_cells(&mut self, count: usize) {
        let cells = self.column..self.column.saturating_add(count);
        self.change(cells.start, |row| row.remove(cells));
    }

    pub(in crate::serve::shell) fn erase_cells(&mut self, count: usize) {
        let cells = self.column..self.column.saturating_add(count);
        self.change(cells.start, |row| row.erase(cells));
    }

    pub(in crate::serve::shell) fn insert_rows(&mut self, count: usize) {
        if self.region.contains(&self.row) {
            self.shift_down(self.row..self.region.end, count);
        }
    }

    pub(in crate::serve::shell) fn remove_rows(&mut self, count: usize) {
        if self.region.contains(&self.row) {
            self.shift_up(self.row..self.region.end, count);
        }
    }

    pub(in crate::serve::shell) fn scroll_up(&mut self, count: usize) {
        if self.region != (0..HEIGHT) || !self.has_history {
            return self.shift_up(self.region.clone(), count);
        }
        for _ in 0..count.min(HEIGHT) {
            self.remember_first();
        }
    }

    pub(in crate::serve::shell) fn scroll_down(&mut self, count: usize) {
        self.shift_down(self.region.clone(), count);
    }

    fn shift_up(&mut self, range: Range<usize>, count: usize) {
        self.invalidate_from(range.start, 0);
        for _ in 0..count.min(range.len()) {
            self.rows.remove(range.start);
            if self.rows.len() >= range.end {
                self.rows.insert(range.end - 1, Row::default());
            }
        }
    }

    fn shift_down(&mut self, range: Range<usize>, count: usize) {
        self.invalidate_from(range.start, 0);
        for _ in 0..count.min(range.len()) {
            if self.rows.len() >= range.end {
                self.rows.remove(range.end - 1);
            }
            if self.rows.len() > range.start {
                self.rows.insert(range.start, Row::default());
            }
        }
    }
}
