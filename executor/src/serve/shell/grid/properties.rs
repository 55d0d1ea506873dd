//! Invariants of a screen, for property tests and fuzzing.

use super::{Grid, HEIGHT, MAX_CELLS, MAX_HISTORY, MAX_HISTORY_BYTES, MAX_ROW, Row, WIDTH};

impl Grid {
    /// Asserts what holds after any byte: the cursor is on the screen and memory is bounded.
    pub(in crate::serve::shell) fn check(&self) {
        let (row, column) = self.cursor();
        assert!(row < HEIGHT && column <= WIDTH && self.fold.is_multiple_of(WIDTH));
        assert!(self.column <= MAX_ROW);
        assert!(self.rows.len() <= HEIGHT);
        assert!(self.region.start + 1 < self.region.end && self.region.end <= HEIGHT);
        let cells: usize = self.rows.iter().map(Row::size).sum();
        assert!(cells <= 2 * MAX_CELLS + MAX_ROW, "{cells}");
        self.rows.iter().for_each(Row::check);
        let bytes: usize = self.history.iter().map(String::len).sum();
        assert_eq!(bytes, self.history_bytes);
        assert!(bytes <= MAX_HISTORY_BYTES && self.history.len() <= MAX_HISTORY);
        assert!(self.has_history || self.history.is_empty());
    }
}
