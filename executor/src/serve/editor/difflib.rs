//! Common lines of two texts, as Python's `difflib` finds them: the longest run first, then those
//! on both sides of it. Other algorithms find as many, but other lines.

use std::collections::HashMap;
use std::ops::Range;

use tokio::time::Instant;

/// Texts from this number of lines on ignore frequent lines as anchors.
const POPULAR_LINE_THRESHOLD: usize = 200;
/// Rows between checks of the deadline.
const ROWS_PER_DEADLINE_CHECK: usize = 256;

/// A common run: its start in both texts, and its length.
pub(super) type Block = (usize, usize, usize);

/// Returns the common runs in order, or none after the deadline.
pub(super) fn blocks(old: &[&str], new: &[&str], deadline: Instant) -> Option<Vec<Block>> {
    let mut matcher = Matcher::of(old, new, deadline);
    let mut queue = vec![(0..old.len(), 0..new.len())];
    let mut blocks = Vec::new();
    while let Some((a, b)) = queue.pop() {
        let (i, j, length) = matcher.longest(&a, &b)?;
        if length == 0 {
            continue;
        }
        blocks.push((i, j, length));
        if a.start < i && b.start < j {
            queue.push((a.start..i, b.start..j));
        }
        if i + length < a.end && j + length < b.end {
            queue.push((i + length..a.end, j + length..b.end));
        }
    }
    blocks.sort_unstable();
    Some(blocks)
}

struct Matcher<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    /// Positions of each line of `new`, without frequent lines.
    positions: HashMap<&'a str, Vec<usize>>,
    /// Length of the run that ends at each position: for the row above and for this one.
    above: Vec<usize>,
    here: Vec<usize>,
    deadline: Instant,
}

impl<'a> Matcher<'a> {
    fn of(old: &'a [&'a str], new: &'a [&'a str], deadline: Instant) -> Self {
        let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in new.iter().enumerate() {
            positions.entry(line).or_default().push(index);
        }
        if new.len() >= POPULAR_LINE_THRESHOLD {
            let max = new.len() / 100 + 1;
            positions.retain(|_, positions| positions.len() <= max);
        }
        Self {
            old,
            new,
            positions,
            above: vec![0; new.len()],
            here: vec![0; new.len()],
            deadline,
        }
    }

    fn longest(&mut self, a: &Range<usize>, b: &Range<usize>) -> Option<Block> {
        let mut best = (a.start, b.start, 0);
        let mut marked: &[usize] = &[];
        for i in a.clone() {
            if i % ROWS_PER_DEADLINE_CHECK == 0 && Instant::now() > self.deadline {
                return None;
            }
            let positions = self.positions.get(self.old[i]).map_or(&[][..], |all| {
                let from = all.partition_point(|position| *position < b.start);
                let to = all.partition_point(|position| *position < b.end);
                &all[from..to]
            });
            for &j in positions {
                let length = if j > b.start {
                    self.above[j - 1] + 1
                } else {
                    1
                };
                self.here[j] = length;
                if length > best.2 {
                    best = (i + 1 - length, j + 1 - length, length);
                }
            }
            for &j in marked {
                self.above[j] = 0;
            }
            std::mem::swap(&mut self.above, &mut self.here);
            marked = positions;
        }
        for &j in marked {
            self.above[j] = 0;
        }
        Some(self.extend(best, a, b))
    }

    /// Extends a run by equal lines on both sides that are no anchors.
    fn extend(&self, block: Block, a: &Range<usize>, b: &Range<usize>) -> Block {
        let (mut i, mut j, mut length) = block;
        while i > a.start && j > b.start && self.old[i - 1] == self.new[j - 1] {
            (i, j, length) = (i - 1, j - 1, length + 1);
        }
        while i + length < a.end
            && j + length < b.end
            && self.old[i + length] == self.new[j + length]
        {
            length += 1;
        }
        (i, j, length)
    }
}
