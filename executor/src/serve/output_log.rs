//! Output of a program for any number of readers: the scrollback, then new output. Each reader pulls
//! at its own speed, so no queue grows.
//!
//! A writer may wait for readers, for a time or as long as it takes. A reader that is left behind
//! skips what the scrollback has lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::scrollback::{MAX_BYTES, Scrollback};

pub(super) use self::scrollback::Stream;

mod scrollback;
#[cfg(test)]
mod tests;

/// Readers of one log.
pub(super) const MAX_READERS: usize = 16;
/// Largest piece for a reader in bytes.
const MAX_PIECE_BYTES: usize = 64 << 10;
/// Bytes that a writer is ahead of the readers that it waits for. The other half of the scrollback
/// stays for readers that come back.
const MAX_AHEAD_BYTES: u64 = MAX_BYTES as u64 / 2;

/// Treatment of readers that do not keep up with the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Waits as long as it takes, also without readers: they get every byte.
    Complete,
    /// Waits so long for the readers that keep up.
    UpTo(Duration),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Output {
        stream: Stream,
        bytes: Vec<u8>,
        /// True if it was in the scrollback when the reader came.
        is_old: bool,
    },
    /// Number of bytes that this reader has missed.
    Skipped(u64),
}

#[derive(Debug, Default)]
pub(super) struct OutputLog {
    state: Mutex<LogState>,
    written: watch::Sender<()>,
    /// Changes when a reader has read, comes or goes.
    read: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LogState {
    scrollback: Scrollback,
    has_ended: bool,
    readers: BTreeMap<u64, Position>,
    next_reader: u64,
    /// Position of the last reader when it left.
    left_at: u64,
}

#[derive(Debug)]
struct Position {
    offset: u64,
    /// True after a writer has given up waiting, until the next read.
    is_behind: bool,
}

/// Result of an attempt to read.
enum Taken {
    Piece(Piece),
    /// All was read so far.
    Nothing,
    End,
}

#[derive(Debug)]
pub(super) struct Reader {
    log: Arc<OutputLog>,
    id: u64,
    written: watch::Receiver<()>,
    /// End of the output when the reader came.
    old_until: u64,
}

impl OutputLog {
    /// Adds output without waiting for readers.
    pub(super) fn push(&self, stream: Stream, bytes: &[u8]) {
        self.state.lock().scrollback.append(stream, bytes);
        self.written.send_replace(());
    }

    /// Adds output after waiting for readers. Has one caller at a time.
    pub(super) async fn append(&self, stream: Stream, bytes: &[u8], pace: Pace) {
        let mut read = self.read.subscribe();
        let count = bytes.len();
        match pace {
            Pace::Complete => {
                let room = |(): &()| self.state.lock().has_room(stream, count, true);
                // The sender is this log.
                let _ = read.wait_for(room).await;
            }
            Pace::UpTo(limit) => {
                let room = |(): &()| self.state.lock().has_room(stream, count, false);
                if tokio::time::timeout(limit, read.wait_for(room))
                    .await
                    .is_err()
                {
                    self.state.lock().leave_behind(count);
                }
            }
        }
        self.push(stream, bytes);
    }

    /// Nothing follows.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.written.send_replace(());
    }

    /// Drops the scrollback.
    pub(super) fn clear(&self) {
        self.state.lock().scrollback.clear();
    }

    /// Changes when a reader has read, comes or goes.
    pub(super) fn reads(&self) -> watch::Receiver<()> {
        self.read.subscribe()
    }

    pub(super) async fn wait_without_readers(&self) {
        // The sender is this log.
        let _ = self.reads().wait_for(|()| self.readers() == 0).await;
    }

    pub(super) fn readers(&self) -> usize {
        self.state.lock().readers.len()
    }

    /// Reader from an offset on, or from the closest one that there is, and that offset. `None` if
    /// there are too many readers.
    pub(super) fn reader(self: &Arc<Self>, after: Option<u64>) -> Option<(Reader, u64)> {
        let mut state = self.state.lock();
        if state.readers.len() == MAX_READERS {
            return None;
        }
        let (start, end) = (state.scrollback.start(), state.scrollback.end());
        let offset = after.map_or(start, |after| after.clamp(start, end));
        let id = state.next_reader;
        state.next_reader += 1;
        let position = Position {
            offset,
            is_behind: false,
        };
        state.readers.insert(id, position);
        drop(state);
        self.read.send_replace(());
        let reader = Reader {
            log: Arc::clone(self),
            id,
            written: self.written.subscribe(),
            old_until: end,
        };
        Some((reader, offset))
    }
}

impl LogState {
    fn has_room(&self, stream: Stream, count: usize, waits_without_readers: bool) -> bool {
        let awaited = self.readers.values().filter(|reader| !reader.is_behind);
        let without = || waits_without_readers.then_some(self.left_at);
        let Some(floor) = awaited.map(|reader| reader.offset).min().or_else(without) else {
            return true;
        };
        let end = self.scrollback.end() + count as u64;
        end - floor <= MAX_AHEAD_BYTES && self.scrollback.start_after(stream, count) <= floor
    }

    /// Marks the readers that a writer does not wait for any longer.
    fn leave_behind(&mut self, count: usize) {
        let end = self.scrollback.end() + count as u64;
        for reader in self.readers.values_mut() {
            reader.is_behind |= end - reader.offset > MAX_AHEAD_BYTES;
        }
    }

    /// Moves a reader to its next piece.
    fn take(&mut self, id: u64, old_until: u64) -> Taken {
        let Some(position) = self.readers.get_mut(&id) else {
            return Taken::End;
        };
        position.is_behind = false;
        let start = self.scrollback.start();
        if position.offset < start {
            let skipped = start - position.offset;
            position.offset = start;
            return Taken::Piece(Piece::Skipped(skipped));
        }
        match self.scrollback.read(position.offset, MAX_PIECE_BYTES) {
            Some((stream, bytes)) => {
                let is_old = position.offset < old_until;
                position.offset += bytes.len() as u64;
                Taken::Piece(Piece::Output {
                    stream,
                    bytes,
                    is_old,
                })
            }
            None if self.has_ended => Taken::End,
            None => Taken::Nothing,
        }
    }
}

impl Reader {
    /// Number of this reader of its log.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Next piece; `None` after the last one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Piece> {
        loop {
            self.written.mark_unchanged();
            let taken = self.log.state.lock().take(self.id, self.old_until);
            match taken {
                Taken::Piece(piece) => {
                    self.log.read.send_replace(());
                    return Some(piece);
                }
                Taken::End => return None,
                Taken::Nothing => self.written.changed().await.ok()?,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        let position = state.readers.remove(&self.id);
        if let Some(position) = position.filter(|_| state.readers.is_empty()) {
            state.left_at = position.offset;
        }
        drop(state);
        self.log.read.send_replace(());
    }
}
