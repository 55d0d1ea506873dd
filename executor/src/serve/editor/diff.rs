//! Unified diffs without context, as Python's `difflib` prints them (spec 6.4).

use std::fmt::Write as _;
use std::ops::Range;

use similar::{Algorithm, DiffOp};
use tokio::time::{Duration, Instant};

/// After this a diff may be larger than it need be.
const PATIENCE: Duration = Duration::from_millis(500);

/// Empty when nothing has changed.
pub(super) fn diff(path: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let mut lines = vec![
        format!("--- {path}").trim_end().to_owned(),
        format!("+++ {path}").trim_end().to_owned(),
    ];
    for (gone, come) in changes(&old, &new) {
        lines.push(format!("@@ -{} +{} @@", span(&gone), span(&come)));
        lines.extend(old[gone].iter().map(|line| marked('-', line)));
        lines.extend(new[come].iter().map(|line| marked('+', line)));
    }
    lines.join("\n")
}

/// What is replaced by what; neighbours are one change.
fn changes(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    let deadline = (Instant::now() + PATIENCE).into_std();
    let operations =
        similar::capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(deadline));
    let mut changes: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for operation in operations {
        if matches!(operation, DiffOp::Equal { .. }) {
            continue;
        }
        let (gone, come) = (operation.old_range(), operation.new_range());
        match changes.last_mut() {
            Some((before, after)) if before.end == gone.start && after.end == come.start => {
                before.end = gone.end;
                after.end = come.end;
            }
            _ => changes.push((gone, come)),
        }
    }
    changes
}

/// `7`, `7,2`, and for nothing the line in front of it: `6,0`.
fn span(lines: &Range<usize>) -> String {
    let mut text = String::new();
    let _ = match lines.len() {
        1 => write!(text, "{}", lines.start + 1),
        0 => write!(text, "{},0", lines.start),
        length => write!(text, "{},{length}", lines.start + 1),
    };
    text
}

fn marked(mark: char, line: &str) -> String {
    format!("{mark}{line}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs_are_the_originals() {
        for (old, new, expected) in [
            ("a\n", "a\n", ""),
            ("", "l1\nl2", "--- /p\n+++ /p\n@@ -1 +1,2 @@\n-\n+l1\n+l2"),
            (
                "l6\nl7\nl8",
                "l6\nL7\nL7b\nl8",
                "--- /p\n+++ /p\n@@ -2 +2,2 @@\n-l7\n+L7\n+L7b",
            ),
            ("a\nb\nc", "a\nc", "--- /p\n+++ /p\n@@ -2 +1,0 @@\n-b"),
            (
                "a\nb",
                "a\nx  \ny\nb",
                "--- /p\n+++ /p\n@@ -1,0 +2,2 @@\n+x\n+y",
            ),
            (
                "a\nb\nc",
                "A\nb\nC",
                "--- /p\n+++ /p\n@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C",
            ),
        ] {
            assert_eq!(diff("/p", old, new), expected);
        }
    }

    #[test]
    fn applying_a_diff_gives_the_new_text() {
        let mut state = 7u32;
        let mut random = |bound: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % bound
        };
        for _ in 0..300 {
            let mut text = |length: u32| {
                let lines: Vec<_> = (0..length).map(|_| format!("l{}", random(5))).collect();
                lines.join("\n")
            };
            let (old, new) = (text(12), text(9));
            let (old, new): (Vec<_>, Vec<_>) =
                (old.split('\n').collect(), new.split('\n').collect());
            let (mut built, mut at) = (Vec::new(), 0);
            for (gone, come) in changes(&old, &new) {
                built.extend_from_slice(&old[at..gone.start]);
                built.extend_from_slice(&new[come]);
                at = gone.end;
            }
            built.extend_from_slice(&old[at..]);
            assert_eq!(built, new);
        }
    }
}
