//! Which lines two texts have in common, as Python's `difflib` finds them: the longest run first,
//! then what is left and right of it. Other algorithms find as much, but other lines.

use std::collections::HashMap;
use std::ops::Range;

use tokio::time::Instant;

/// From here on, lines that occur too often are no anchors.
const MANY: usize = 200;
/// Rows between looks at the clock.
const STRIDE: usize = 256;

/// A common run: where it starts in both, and its length.
pub(super) type Block = (usize, usize, usize);

/// The common runs in order, or nothing if that takes too long.
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
    /// Where each line of `new` is, unless it is everywhere.
    places: HashMap<&'a str, Vec<usize>>,
    /// Lengths of the runs that end at each place: for the row above, and for this one.
    above: Vec<usize>,
    here: Vec<usize>,
    deadline: Instant,
}

impl<'a> Matcher<'a> {
    fn of(old: &'a [&'a str], new: &'a [&'a str], deadline: Instant) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(index);
        }
        if new.len() >= MANY {
            let most = new.len() / 100 + 1;
            places.retain(|_, places| places.len() <= most);
        }
        Self {
            old,
            new,
            places,
            above: vec![0; new.len()],
            here: vec![0; new.len()],
            deadline,
        }
    }

    fn longest(&mut self, a: &Range<usize>, b: &Range<usize>) -> Option<Block> {
        let mut best = (a.start, b.start, 0);
        let mut marked: &[usize] = &[];
        for i in a.clone() {
            if i % STRIDE == 0 && Instant::now() > self.deadline {
                return None;
            }
            let places = self.places.get(self.old[i]).map_or(&[][..], |places| {
                let from = places.partition_point(|place| *place < b.start);
                let to = places.partition_point(|place| *place < b.end);
                &places[from..to]
            });
            for &j in places {
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
            marked = places;
        }
        for &j in marked {
            self.above[j] = 0;
        }
        Some(self.extend(best, a, b))
    }

    /// Takes in the lines around that are no anchors.
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
