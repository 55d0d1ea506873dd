//! One line of a terminal: a character for each column, without a fixed width.

#[cfg(any(test, feature = "fuzzing"))]
mod properties;

use std::ops::Range;

/// The right half of a wide character.
const HALF: char = '\0';
const BLANK: char = ' ';
/// Limit of combining characters in a row: enough for a long line of any script.
const MAX_MARKS: usize = 256 << 10;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    cells: Vec<char>,
    /// Combining characters with the column of their base character, sorted by column.
    marks: Vec<(usize, char)>,
}

impl Row {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Memory use in characters.
    pub(super) fn size(&self) -> usize {
        self.cells.len() + self.marks.len() * (size_of::<(usize, char)>() / size_of::<char>())
    }

    pub(super) fn put(&mut self, column: usize, character: char, wide: bool) {
        let width = if wide { 2 } else { 1 };
        self.make_room(column, width);
        self.cells[column] = character;
        if wide {
            self.cells[column + 1] = HALF;
        }
    }

    /// Writes text of printable ASCII only.
    pub(super) fn put_ascii(&mut self, column: usize, text: &[u8]) {
        let characters = text.iter().map(|byte| char::from(*byte));
        if column == self.cells.len() {
            self.cells.extend(characters);
            return;
        }
        self.make_room(column, text.len());
        let target = &mut self.cells[column..column + text.len()];
        target
            .iter_mut()
            .zip(characters)
            .for_each(|(cell, new)| *cell = new);
    }

    /// Adds a combining character to the character that ends before `column`.
    pub(super) fn combine(&mut self, column: usize, mark: char) {
        let base = column.checked_sub(1).map(|at| match self.cells.get(at) {
            Some(&HALF) => at - 1,
            _ => at,
        });
        let base = base.filter(|at| *at < self.cells.len());
        if let Some(base) = base.filter(|_| self.marks.len() < MAX_MARKS) {
            let at = self.marks.partition_point(|mark| mark.0 <= base);
            self.marks.insert(at, (base, mark));
        }
    }

    pub(super) fn erase(&mut self, range: Range<usize>) {
        let end = range.end.min(self.cells.len());
        if range.start < end {
            self.make_room(range.start, end - range.start);
            self.cells[range.start..end].fill(BLANK);
        }
    }

    pub(super) fn truncate(&mut self, column: usize) {
        if column < self.cells.len() {
            self.erase(column..self.cells.len());
            self.cells.truncate(column);
        }
    }

    /// Inserts blanks and moves the cells after them to the right, up to `end`.
    pub(super) fn insert(&mut self, column: usize, count: usize, end: usize) {
        if column < self.cells.len().min(end) {
            let count = count.min(end - column);
            self.remove(end - count..end);
            self.part(column);
            let blanks = std::iter::repeat_n(BLANK, count);
            self.cells.splice(column..column, blanks);
            let moved = self.marks_from(column);
            self.marks[moved..]
                .iter_mut()
                .for_each(|mark| mark.0 += count);
        }
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        let end = range.end.min(self.cells.len());
        if range.start < end {
            self.part(range.start);
            self.part(end);
            self.cells.drain(range.start..end);
            self.remove_marks(range.start..end);
            let moved = self.marks_from(range.start);
            let count = end - range.start;
            self.marks[moved..]
                .iter_mut()
                .for_each(|mark| mark.0 -= count);
        }
    }

    /// Returns the text from `column` on, without trailing blanks.
    pub(super) fn text(&self, column: usize) -> String {
        let cells = self.cells.iter().enumerate().skip(column);
        let mut marks = self.marks[self.marks_from(column)..].iter().peekable();
        let mut text = String::with_capacity(self.cells.len().saturating_sub(column));
        for (at, cell) in cells.filter(|(_, cell)| **cell != HALF) {
            text.push(*cell);
            while let Some((_, mark)) = marks.next_if(|mark| mark.0 == at) {
                text.push(*mark);
            }
        }
        text.truncate(text.trim_end_matches(BLANK).len());
        text
    }

    /// Extends the row to the columns and frees them from other characters.
    fn make_room(&mut self, column: usize, width: usize) {
        let end = column + width;
        if self.cells.len() < end {
            self.cells.resize(end, BLANK);
        }
        self.part(column);
        self.part(end);
        self.remove_marks(column..end);
    }

    /// Blanks a wide character that spans this column and the one before.
    fn part(&mut self, column: usize) {
        if column > 0 && self.cells.get(column) == Some(&HALF) {
            self.cells[column - 1..=column].fill(BLANK);
        }
    }

    fn remove_marks(&mut self, range: Range<usize>) {
        if !self.marks.is_empty() {
            let marks = self.marks_from(range.start)..self.marks_from(range.end);
            self.marks.drain(marks);
        }
    }

    /// Index of the first mark from this column on.
    fn marks_from(&self, column: usize) -> usize {
        self.marks.partition_point(|mark| mark.0 < column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_half_is_blanked_when_half_of_wide_character_is_overwritten() {
        let mut row = Row::default();
        row.put(0, '日', true);
        row.put(2, '本', true);
        assert_eq!(row.text(0), "日本");
        row.put(1, 'x', false);
        row.put(2, 'y', false);
        assert_eq!(row.text(0), " xy");
    }

    #[test]
    fn mark_is_removed_with_its_character() {
        let mut row = Row::default();
        row.put(0, 'e', false);
        row.combine(1, '\u{301}');
        row.put(1, '.', false);
        assert_eq!(row.text(0), "e\u{301}.");
        row.put_ascii(0, b"ab");
        assert_eq!(row.text(0), "ab");
    }

    #[test]
    fn marks_move_with_their_characters() {
        let mut row = Row::default();
        for (column, letter) in "abcd".chars().enumerate() {
            row.put(column, letter, false);
            row.combine(column + 1, '\u{301}');
        }
        row.insert(1, 2, 100);
        row.remove(3..4);
        assert_eq!(row.text(0), "a\u{301}  c\u{301}d\u{301}");
        assert_eq!(row.text(4), "d\u{301}");
        (0..2 * MAX_MARKS).for_each(|_| row.combine(1, '\u{301}'));
        row.check();
    }

    #[test]
    fn wide_characters_stay_complete_after_insert_and_remove() {
        let mut row = Row::default();
        (0..4).for_each(|at| row.put(2 * at, '日', true));
        row.insert(1, 1, 8);
        row.check();
        assert_eq!(row.text(0), "   日日");
        row.remove(4..6);
        row.check();
        assert_eq!(row.len(), 6);
    }

    #[test]
    fn cells_are_inserted_and_removed() {
        let mut row = Row::default();
        row.put_ascii(0, b"abcdef");
        row.insert(1, 2, 9);
        assert_eq!(row.text(0), "a  bcdef");
        row.insert(1, 2, 9);
        row.remove(1..3);
        assert_eq!(row.text(0), "a  bcde");
        row.insert(7, 9, 9);
        row.put_ascii(7, b"f");
        row.remove(0..3);
        row.erase(1..3);
        assert_eq!(row.text(0), "b  ef");
        row.truncate(2);
        assert_eq!(row.text(0), "b");
    }
}
