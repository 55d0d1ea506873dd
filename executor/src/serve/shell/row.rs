//! One line of a terminal: a character for each column, as long as the program makes it.

use std::ops::Range;

/// The right half of a wide character.
const HALF: char = '\0';
const BLANK: char = ' ';

#[derive(Debug, Default)]
pub(super) struct Row {
    cells: Vec<char>,
    /// Characters of no width, with the column of the one they belong to.
    marks: Vec<(usize, char)>,
}

impl Row {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn put(&mut self, column: usize, character: char, wide: bool) {
        let width = if wide { 2 } else { 1 };
        self.make_room(column, width);
        self.cells[column] = character;
        if wide {
            self.cells[column + 1] = HALF;
        }
    }

    /// Printable ASCII only.
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

    /// Adds an accent or the like to the character that ends before `column`.
    pub(super) fn combine(&mut self, column: usize, mark: char) {
        let base = (0..column.min(self.cells.len()))
            .rev()
            .find(|at| self.cells[*at] != HALF);
        if let Some(base) = base {
            self.marks.push((base, mark));
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

    pub(super) fn insert(&mut self, column: usize, count: usize) {
        if column < self.cells.len() {
            self.marks.clear();
            let blanks = std::iter::repeat_n(BLANK, count);
            self.cells.splice(column..column, blanks);
        }
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        let end = range.end.min(self.cells.len());
        if range.start < end {
            self.marks.clear();
            self.cells.drain(range.start..end);
        }
    }

    /// From `column` on, without trailing blanks.
    pub(super) fn text(&self, column: usize) -> String {
        let cells = self.cells.iter().enumerate().skip(column);
        let mut text = String::with_capacity(self.cells.len().saturating_sub(column));
        for (at, cell) in cells.filter(|(_, cell)| **cell != HALF) {
            text.push(*cell);
            if !self.marks.is_empty() {
                text.extend(
                    self.marks
                        .iter()
                        .filter(|mark| mark.0 == at)
                        .map(|mark| mark.1),
                );
            }
        }
        text.truncate(text.trim_end_matches(BLANK).len());
        text
    }

    /// Makes the columns exist and belong to no other character.
    fn make_room(&mut self, column: usize, width: usize) {
        let end = column + width;
        if self.cells.len() < end {
            self.cells.resize(end, BLANK);
        }
        if column > 0 && self.cells[column] == HALF {
            self.cells[column - 1] = BLANK;
        }
        if self.cells.get(end) == Some(&HALF) {
            self.cells[end] = BLANK;
        }
        if !self.marks.is_empty() {
            self.marks.retain(|mark| !(column..end).contains(&mark.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_half_of_a_wide_character_blanks_the_other() {
        let mut row = Row::default();
        row.put(0, '日', true);
        row.put(2, '本', true);
        assert_eq!(row.text(0), "日本");
        row.put(1, 'x', false);
        row.put(2, 'y', false);
        assert_eq!(row.text(0), " xy");
    }

    #[test]
    fn accents_go_where_their_character_goes() {
        let mut row = Row::default();
        row.put(0, 'e', false);
        row.combine(1, '\u{301}');
        row.put(1, '.', false);
        assert_eq!(row.text(0), "e\u{301}.");
        row.put_ascii(0, b"ab");
        assert_eq!(row.text(0), "ab");
    }

    #[test]
    fn cells_are_inserted_and_removed() {
        let mut row = Row::default();
        row.put_ascii(0, b"abcdef");
        row.insert(1, 2);
        assert_eq!(row.text(0), "a  bcdef");
        row.remove(0..3);
        row.erase(1..3);
        assert_eq!(row.text(0), "b  ef");
        row.truncate(2);
        assert_eq!(row.text(0), "b");
    }
}
