//! Maps of files with holes, as in GNU tar's format 1.0: lines of numbers in front of the content.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::pax::number;

/// Ranges of one file. One with more is stored without holes.
const MAX_RANGES: usize = 4096;
const BLOCK: usize = 512;
/// Bytes of the longest map.
pub(super) const MAX_MAP_BYTES: usize = 256 << 10;

/// Offset and length of data.
pub(super) type Range = (u64, u64);

/// Ranges of a file with data; `None` if the file has no holes or too many.
pub(super) fn ranges(file: &File, size: u64) -> io::Result<Option<Vec<Range>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // Not every file system tells.
            Err(Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start || ranges.len() == MAX_RANGES {
            return Ok(None);
        }
        ranges.push((start, end - start));
        at = end;
    }
    let has_holes = ranges.iter().map(|range| range.1).sum::<u64>() < size;
    Ok(has_holes.then_some(ranges))
}

/// Map in front of the content, in whole blocks.
pub(super) fn to_map(ranges: &[Range]) -> Vec<u8> {
    let numbers = ranges
        .iter()
        .flat_map(|(offset, length)| [*offset, *length]);
    let count = u64::try_from(ranges.len()).unwrap_or_default();
    let lines = std::iter::once(count).chain(numbers);
    let mut map: Vec<u8> = lines
        .flat_map(|number| format!("{number}\n").into_bytes())
        .collect();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// Reads a map by blocks. The ranges are in order, do not overlap and end within `size`.
pub(super) fn read_map<E>(
    size: u64,
    mut block: impl FnMut() -> Result<[u8; BLOCK], E>,
) -> Result<Option<Vec<Range>>, E> {
    let mut map = Vec::new();
    loop {
        map.extend(block()?);
        let mut lines = map.split(|byte| *byte == b'\n');
        let count = lines
            .next()
            .and_then(number)
            .filter(|_| map.contains(&b'\n'));
        let Some(count) = count.filter(|count| *count <= MAX_RANGES as u64) else {
            return Ok(None);
        };
        let wanted = usize::try_from(2 * count).unwrap_or_default();
        // The text after the last newline is no line.
        let complete = lines.clone().count().saturating_sub(1);
        if complete >= wanted {
            let numbers: Option<Vec<u64>> = lines.take(wanted).map(number).collect();
            return Ok(numbers.and_then(|numbers| pairs(&numbers, size)));
        }
        if map.len() > MAX_MAP_BYTES {
            return Ok(None);
        }
    }
}

fn pairs(numbers: &[u64], size: u64) -> Option<Vec<Range>> {
    let mut end = 0;
    let pairs = numbers.chunks_exact(2).map(|pair| {
        let (offset, length) = (pair[0], pair[1]);
        let is_valid = offset >= end && offset.checked_add(length)? <= size;
        end = offset.saturating_add(length);
        is_valid.then_some((offset, length))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn parse(map: &[u8], size: u64) -> Option<Vec<Range>> {
        let mut blocks = map.chunks(BLOCK);
        let block = || {
            let mut block = [0; BLOCK];
            let next = blocks.next().unwrap_or_default();
            block[..next.len()].copy_from_slice(next);
            Ok::<_, Infallible>(block)
        };
        read_map(size, block).unwrap()
    }

    #[test]
    fn maps_round_trip_and_bad_ones_are_refused() {
        let many: Vec<Range> = (0..500).map(|at| (at * 100_000, 4096)).collect();
        for ranges in [vec![], vec![(0, 1)], vec![(4096, 10), (8192, 0)], many] {
            let map = to_map(&ranges);
            assert_eq!(map.len() % BLOCK, 0);
            assert_eq!(parse(&map, 1 << 40), Some(ranges));
        }
        for wrong in [
            &b"x\n"[..],
            b"5000\n",
            b"1\n5\n",
            b"1\n0\n11\n",
            b"2\n5\n1\n0\n1\n",
            b"1\n18446744073709551615\n1\n",
        ] {
            assert_eq!(parse(wrong, 10), None, "{wrong:?}");
        }
    }
}
