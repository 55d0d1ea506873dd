//! Erases, inserts and removes cells, lines and the whole screen.

use std::ops::Range;

use super::{Grid, HEIGHT, Row, WIDTH};

impl Grid {
    pub(in crate::serve::shell) fn erase_in_row(&mut self, part: usize) {
        let (at, column) = (self.row, self.column);
        let start = self.fold;
        match part {
            0 => self.change(at, column, |row| row.truncate(column)),
            1 => self.change(at, start, |row| row.erase(start..column + 1)),
            2 => self.change(at, start, |row| row.truncate(start)),
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

    /// Clears the screen. Its lines move to the history.
    pub(in crate::serve::shell) fn clear_screen(&mut self) {
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

    pub(in crate::serve::shell) fn forget_history(&mut self) {
        self.dropped_lines += self.history.len() as u64;
        self.history.clear();
        self.history_bytes = 0;
    }

    pub(in crate::serve::shell) fn insert_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        let end = self.fold + WIDTH;
        self.change(at, column, |row| row.insert(column, count, end));
    }

    pub(in crate::serve::shell) fn remove_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        self.change(at, column, |row| {
            row.remove(column..column.saturating_add(count));
        });
    }

    pub(in crate::serve::shell) fn erase_cells(&mut self, count: usize) {
        let (at, column) = (self.row, self.column);
        self.change(at, column, |row| {
            row.erase(column..column.saturating_add(count));
        });
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

    pub(in crate::serve::shell) fn shift_up(&mut self, range: Range<usize>, count: usize) {
        self.invalidate_from(range.start, 0);
        for _ in 0..count.min(range.len()) {
            self.rows.remove(range.start);
            if self.rows.len() >= range.end {
                self.rows.insert(range.end - 1, Row::default());
            }
        }
    }

    pub(in crate::serve::shell) fn shift_down(&mut self, range: Range<usize>, count: usize) {
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
