//! Tables with columns as wide as their widest cell.

use unicode_width::UnicodeWidthStr as _;

use crate::text::escape;

const GAP: usize = 3;

/// Rows below a head. Cells are escaped.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&name| name.into()).collect()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.into_iter().map(|cell| escape(&cell)).collect());
    }

    /// Renders head and rows, one line each.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.push_str(&" ".repeat(width + GAP - cell.width()));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_width_on_screen() {
        let mut table = Table::new(&["NAME", "STATUS"]);
        table.row(["漢字漢字".into(), "running".into()]);
        table.row(["a\u{1b}b".into(), String::new()]);
        assert_eq!(
            table.render(),
            "NAME       STATUS\n漢字漢字   running\na\\u{1b}b\n"
        );
    }
}
