//! Unified diffs without context, as Python's `difflib` prints them (`docs/specs/executor.md`,
//! section 6.4, rule 6).

use std::ops::Range;

use similar::{Algorithm, DiffOp};
use tokio::time::{Duration, Instant};

use super::difflib::{Block, blocks};

/// Timeout of the algorithm of difflib; later diffs may be larger than necessary.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the diff, empty if the texts are equal.
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
    for (removed, added) in changes(&old, &new) {
        lines.push(format!("@@ -{} +{} @@", span(&removed), span(&added)));
        lines.extend(old[removed].iter().map(|line| marked('-', line)));
        lines.extend(new[added].iter().map(|line| marked('+', line)));
    }
    lines.join("\n")
}

/// Returns the replaced ranges of both texts, in order.
fn changes(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    let start = Instant::now();
    let blocks = blocks(old, new, start + DIFF_TIMEOUT)
        .unwrap_or_else(|| fast_blocks(old, new, start + 2 * DIFF_TIMEOUT));
    let mut changes = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (old_start, new_start, length) in blocks.into_iter().chain([(old.len(), new.len(), 0)]) {
        if i < old_start || j < new_start {
            changes.push((i..old_start, j..new_start));
        }
        (i, j) = (old_start + length, new_start + length);
    }
    changes
}

/// Finds common blocks of texts for which difflib would take minutes.
fn fast_blocks(old: &[&str], new: &[&str], deadline: Instant) -> Vec<Block> {
    let deadline = Some(deadline.into_std());
    similar::capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline)
        .into_iter()
        .filter_map(|operation| match operation {
            DiffOp::Equal {
                old_index,
                new_index,
                len,
            } => Some((old_index, new_index, len)),
            _ => None,
        })
        .collect()
}

/// Formats a range: `7`, `7,2`, and `6,0` for an empty range after line 6.
fn span(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => format!("{}", lines.start + 1),
        0 => format!("{},0", lines.start),
        length => format!("{},{length}", lines.start + 1),
    }
}

fn marked(mark: char, line: &str) -> String {
    format!("{mark}{line}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u32);

    impl Random {
        fn below(&mut self, bound: u32) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 16) % bound
        }

        fn text(&mut self, large: bool) -> String {
            let lines = if large {
                150 + self.below(200)
            } else {
                self.below(14)
            };
            let kinds = if large { 60 } else { 5 };
            let mut line = || match self.below(kinds) {
                0 => String::new(),
                kind => format!("l{kind}"),
            };
            (0..lines).map(|_| line()).collect::<Vec<_>>().join("\n")
        }
    }

    /// The checksum is that of `difflib` of Python 3.12 for the same random texts.
    #[test]
    fn random_diffs_equal_those_of_difflib() {
        let mut random = Random(7);
        let mut sum = 0xcbf2_9ce4_8422_2325u64;
        for round in 0..400 {
            let large = round % 40 == 0;
            let (old, new) = (random.text(large), random.text(large));
            for byte in diff("/p", &old, &new).bytes() {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        assert_eq!(sum, 0xf560_cd88_c216_7cc1);
    }

    #[test]
    fn common_blocks_are_equal_in_both_texts() {
        let mut random = Random(8);
        for find in [blocks_or_none, |old: &[&str], new: &[&str]| {
            fast_blocks(old, new, Instant::now() + DIFF_TIMEOUT)
        }] {
            for _ in 0..200 {
                let texts = [random.text(false), random.text(false)];
                let [old, new] = texts
                    .each_ref()
                    .map(|text| text.split('\n').collect::<Vec<_>>());
                for (i, j, length) in find(&old, &new) {
                    assert_eq!(old[i..i + length], new[j..j + length]);
                }
            }
        }
    }

    fn blocks_or_none(old: &[&str], new: &[&str]) -> Vec<Block> {
        blocks(old, new, Instant::now() + DIFF_TIMEOUT).unwrap_or_default()
    }
}
