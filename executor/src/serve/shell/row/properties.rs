//! Invariants of a line, for property tests and fuzzing.

use unicode_width::UnicodeWidthChar as _;

use super::{HALF, MAX_MARKS, Row};

impl Row {
    /// Asserts that wide characters are complete and that marks are few and have a base.
    pub(in crate::serve::shell) fn check(&self) {
        for (at, cell) in self.cells.iter().enumerate() {
            let half = self.cells.get(at + 1) == Some(&HALF);
            assert_eq!(cell.width() == Some(2), half, "{at}: {:?}", self.cells);
        }
        assert!(self.cells.first() != Some(&HALF));
        assert!(self.marks.is_sorted_by_key(|mark| mark.0));
        assert!(self.marks.len() <= MAX_MARKS);
        for mark in &self.marks {
            assert!(self.cells.get(mark.0).is_some_and(|cell| *cell != HALF));
        }
    }
}
