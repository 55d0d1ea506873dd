//! Bound of what an archive has between the contents of two entries: the archive library keeps long
//! names and attributes in memory, of any length.

use std::cell::Cell;
use std::io::{self, Read};

/// Bytes that headers may take. A path has at most 4096.
pub(super) const HEADER: u64 = 1 << 20;
/// Content is not kept in memory.
pub(super) const CONTENT: u64 = u64::MAX;

/// Reads as many bytes as are `left`, which its owner sets anew for each header and content.
#[derive(Debug)]
pub(super) struct LimitedHeaders<'a, R> {
    stream: R,
    left: &'a Cell<u64>,
}

impl<'a, R> LimitedHeaders<'a, R> {
    pub(super) fn new(stream: R, left: &'a Cell<u64>) -> Self {
        Self { stream, left }
    }
}

impl<R: Read> Read for LimitedHeaders<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            let text = format!("the header of an entry exceeds {HEADER} bytes");
            return Err(io::Error::other(text));
        }
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.stream.read(&mut buffer[..length])?;
        self.left.set(left - read as u64);
        Ok(read)
    }
}
