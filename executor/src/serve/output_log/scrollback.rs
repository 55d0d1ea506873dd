//! Latest bytes of an output by offset, of one stream or of two that alternate.

use std::collections::VecDeque;

/// Bytes that are kept.
pub(in crate::serve) const MAX_BYTES: usize = 256 << 10;
/// Runs of bytes of the same stream that are kept.
const MAX_RUNS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Stream {
    Output,
    Error,
}

/// Consecutive bytes of one stream, up to an offset.
#[derive(Debug)]
struct Run {
    stream: Stream,
    end: u64,
}

#[derive(Debug, Default)]
pub(super) struct Scrollback {
    bytes: VecDeque<u8>,
    runs: VecDeque<Run>,
    end: u64,
}

impl Scrollback {
    /// Offset of the first byte that is kept.
    pub(super) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Offset of the next byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The `start` after `count` more bytes.
    pub(super) fn start_after(&self, stream: Stream, count: usize) -> u64 {
        let end = self.end + count as u64;
        let is_new_run = self.runs.back().is_none_or(|last| last.stream != stream);
        let by_runs = match self.runs.front() {
            Some(first) if is_new_run && self.runs.len() == MAX_RUNS => first.end,
            _ => 0,
        };
        let by_bytes = end.saturating_sub(MAX_BYTES as u64);
        self.start().max(by_bytes).max(by_runs)
    }

    /// Adds bytes and drops the oldest ones.
    pub(super) fn append(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.start_after(stream, bytes.len());
        self.bytes.drain(..self.index(start));
        while self.runs.front().is_some_and(|run| run.end <= start) {
            self.runs.pop_front();
        }
        // A piece that is larger than the scrollback loses its own beginning.
        let skipped = usize::try_from(start.saturating_sub(self.end)).unwrap_or(0);
        self.bytes.extend(&bytes[skipped..]);
        self.end += bytes.len() as u64;
        match self.runs.back_mut() {
            Some(last) if last.stream == stream => last.end = self.end,
            _ => self.runs.push_back(Run {
                stream,
                end: self.end,
            }),
        }
    }

    /// Drops all bytes; offsets go on.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    /// At most `limit` bytes of one stream from an offset on; `None` if it is not kept.
    pub(super) fn read(&self, offset: u64, limit: usize) -> Option<(Stream, Vec<u8>)> {
        if !(self.start()..self.end).contains(&offset) {
            return None;
        }
        let run = self.runs.partition_point(|run| run.end <= offset);
        let run = self.runs.get(run)?;
        let from = self.index(offset);
        let to = self.index(run.end).min(from.saturating_add(limit));
        let (first, second) = self.bytes.as_slices();
        let part = |slice: &[u8], begin: usize| {
            let within = |at: usize| at.saturating_sub(begin).min(slice.len());
            slice[within(from)..within(to)].to_vec()
        };
        let mut bytes = part(first, 0);
        bytes.extend(part(second, first.len()));
        Some((run.stream, bytes))
    }

    /// Index of an offset, at most the number of bytes.
    fn index(&self, offset: u64) -> usize {
        let index = usize::try_from(offset.saturating_sub(self.start())).unwrap_or(usize::MAX);
        index.min(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_belong_to_one_stream() {
        let mut kept = Scrollback::default();
        kept.append(Stream::Output, b"ab");
        kept.append(Stream::Output, b"c");
        kept.append(Stream::Error, b"de");
        assert_eq!(kept.read(0, 10), Some((Stream::Output, b"abc".to_vec())));
        assert_eq!(kept.read(1, 1), Some((Stream::Output, b"b".to_vec())));
        assert_eq!(kept.read(3, 10), Some((Stream::Error, b"de".to_vec())));
        assert_eq!(kept.read(5, 10), None);
    }

    #[test]
    fn oldest_bytes_are_dropped() {
        let mut kept = Scrollback::default();
        kept.append(Stream::Output, &[1; 10]);
        kept.append(Stream::Error, &vec![2; MAX_BYTES]);
        assert_eq!((kept.start(), kept.end()), (10, 10 + MAX_BYTES as u64));
        assert_eq!(kept.read(9, 1), None);
        assert_eq!(kept.read(10, 1), Some((Stream::Error, vec![2])));
        kept.append(Stream::Output, &vec![3; 2 * MAX_BYTES]);
        assert_eq!(kept.bytes.len(), MAX_BYTES);
        let first = kept.read(kept.start(), 1);
        assert_eq!(first, Some((Stream::Output, vec![3])));
    }

    #[test]
    fn alternating_streams_are_bounded() {
        let mut kept = Scrollback::default();
        for number in 0..3 * MAX_RUNS {
            let stream = [Stream::Output, Stream::Error][number % 2];
            let expected = kept.start_after(stream, 1);
            kept.append(stream, b"x");
            assert_eq!(kept.start(), expected);
            assert!(kept.runs.len() <= MAX_RUNS);
        }
        assert_eq!(kept.bytes.len(), MAX_RUNS);
    }

    #[test]
    fn any_sequence_reads_as_its_tail() {
        let mut random = numbers(7);
        let (mut kept, mut all) = (Scrollback::default(), Vec::new());
        for _ in 0..400 {
            let stream = [Stream::Output, Stream::Error][random() % 2];
            let count = random() % 3000;
            let piece: Vec<u8> = (0..count)
                .map(|_| u8::try_from(random() % 256).unwrap())
                .collect();
            all.extend(piece.iter().map(|byte| (stream, *byte)));
            kept.append(stream, &piece);
            let mut offset = kept.start();
            let mut read = Vec::new();
            while let Some((stream, bytes)) = kept.read(offset, 1 + random() % 5000) {
                offset += bytes.len() as u64;
                read.extend(bytes.into_iter().map(|byte| (stream, byte)));
            }
            assert_eq!(offset, all.len() as u64);
            assert!(all.ends_with(&read) && read.len() == all.len().min(MAX_BYTES));
        }
    }

    /// Numbers of a linear congruential generator.
    fn numbers(mut state: usize) -> impl FnMut() -> usize {
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        }
    }
}
