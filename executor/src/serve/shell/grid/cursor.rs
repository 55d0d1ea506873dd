//! Moves the cursor and sets the scroll region.

use super::{Grid, HEIGHT, TAB, WIDTH};

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
}
