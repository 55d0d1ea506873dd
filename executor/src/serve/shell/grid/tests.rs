//! Tests of the grid.

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
fn line_longer_than_terminal_is_not_folded() {
    let mut grid = Grid::new(true);
    write(
        &mut grid,
        &("x".repeat(2500) + "\n" + &"y".repeat(1000) + "\rz\n"),
    );
    let text = grid.unreported_text();
    let expected = "x".repeat(2500) + "\nz" + &"y".repeat(999) + "\n";
    assert!(text == expected);
    // A carriage return goes to the start of the terminal row, not of the line.
    write(&mut grid, &("a".repeat(1500) + "\rb"));
    assert!(
        grid.text()
            .ends_with(&("a".repeat(1000) + "b" + &"a".repeat(499) + "\n"))
    );
}

#[test]
fn only_new_and_changed_lines_are_reported() {
    let mut grid = Grid::new(true);
    write(&mut grid, "one\nname: ");
    grid.mark_reported();
    assert_eq!(grid.unreported_text().trim(), "");
    write(&mut grid, "John\ntwo");
    assert_eq!(grid.unreported_text(), "John\ntwo\n");
    grid.mark_reported();
    write(&mut grid, "\rTWO!");
    assert_eq!(grid.unreported_text(), "TWO!\n");
    grid.mark_reported();
    grid.up(1);
    write(&mut grid, "\rName: ");
    assert_eq!(grid.unreported_text(), "Name: John\nTWO!\n");
}

#[test]
fn late_combining_character_is_reported_with_its_line() {
    let mut grid = Grid::new(true);
    write(&mut grid, "one\ncafe");
    grid.mark_reported();
    grid.put('\u{301}');
    assert_eq!(grid.unreported_text(), "cafe\u{301}\n");
    grid.mark_reported();
    write(&mut grid, " x");
    grid.scroll_up(2);
    assert_eq!(grid.unreported_text(), " x\n");
    grid.forward(5);
    grid.put('\u{301}');
    assert_eq!(grid.unreported_text().trim_end(), " x");
}

#[test]
fn end_of_long_text_is_kept() {
    let mut grid = Grid::new(true);
    for number in 0..50_000 {
        write(&mut grid, &format!("Line {number}\n"));
        if number == 39_989 {
            grid.mark_reported();
        }
    }
    assert!(grid.is_truncated);
    let text = grid.unreported_text();
    assert!(text.starts_with("\nLine 39990\n"), "{}", &text[..50]);
    assert!(text.ends_with("Line 49999\n"));
    grid.reported_to = (0, 0);
    let lines = grid.unreported_text().lines().count();
    assert!((10_001..=11_360).contains(&lines), "{lines}");
}

#[test]
fn memory_is_bounded_for_long_lines() {
    let mut grid = Grid::new(true);
    grid.put('<');
    (0..3 * MAX_ROW / 100).for_each(|_| grid.put_ascii(&[b'x'; 100]));
    grid.put('>');
    let text = grid.text();
    assert!(text.len() <= MAX_ROW + 1);
    assert!(text.starts_with('<') && text.ends_with(">\n"));
    for _ in 0..30 {
        write(&mut grid, "\n");
        (0..9000).for_each(|_| grid.put_ascii(&[b'y'; 100]));
    }
    let cells: usize = grid.rows.iter().map(Row::len).sum();
    assert!(cells <= MAX_CELLS + MAX_ROW && grid.history_bytes <= MAX_HISTORY_BYTES);
}

#[test]
fn memory_is_bounded_when_cursor_moves() {
    for rows in [0..20, 980..1000] {
        let mut grid = Grid::new(false);
        for row in rows.rev() {
            grid.go_to_row(row);
            (0..50).for_each(|_| grid.put_ascii(&[b'x'; 10_000]));
        }
        let cells: usize = grid.rows.iter().map(Row::len).sum();
        assert!(cells <= MAX_CELLS, "{cells}");
    }
}

#[test]
fn inserted_cells_push_others_off_the_row() {
    let mut grid = Grid::new(true);
    write(&mut grid, &("a".repeat(1000) + "bc"));
    grid.up(1);
    grid.carriage_return();
    (0..1000).for_each(|_| grid.insert_cells(999));
    assert_eq!(grid.text(), " ".repeat(1000) + "bc\n");
    grid.check();
}
