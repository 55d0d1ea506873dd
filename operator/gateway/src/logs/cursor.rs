//! Positions in a log. The kubelet seeks by whole seconds, and several lines may have one time, so a
//! position is the latest time, and the number of lines since the first one of that time.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

/// Distance before a position from which the log is read: the kubelet rounds to seconds, and lines of
/// the two outputs of a program may be out of order.
const SEEK_MARGIN: SignedDuration = SignedDuration::from_secs(2);
/// A time, a count, and the longest name of a Pod.
const MAX_CURSOR_BYTES: usize = 320;

/// Position in the log of one Pod, as the id of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(super) position: Position,
    pub(super) pod: String,
}

/// The text is not a cursor.
#[derive(Debug, thiserror::Error)]
#[error("not a cursor of a log")]
pub(crate) struct InvalidCursor;

/// Last line that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Latest time of all lines.
    time: Timestamp,
    /// Lines from the first one of that time to the last one.
    count: u32,
}

/// Lines of a log that is read again, up to a position.
#[derive(Debug)]
pub(super) struct KnownLines {
    end: Option<Position>,
    seen: u32,
}

impl Position {
    pub(super) fn first(time: Timestamp) -> Self {
        Self { time, count: 1 }
    }

    /// Position of the next line. One that is out of order counts for the latest time.
    pub(super) fn next(self, time: Timestamp) -> Self {
        if time > self.time {
            return Self::first(time);
        }
        Self {
            count: self.count.saturating_add(1),
            ..self
        }
    }

    /// Time from which the log has to be read to find the position, in whole seconds.
    pub(super) fn seek_time(self) -> Timestamp {
        let from = self.time.checked_sub(SEEK_MARGIN).unwrap_or(self.time);
        Timestamp::from_second(from.as_second()).unwrap_or(from)
    }
}

impl KnownLines {
    pub(super) fn until(end: Option<Position>) -> Self {
        Self { end, seen: 0 }
    }

    /// Returns whether a line was read before. The log may have been rotated, so that the position is
    /// not in it any more: a later line is new.
    pub(super) fn includes(&mut self, time: Timestamp) -> bool {
        let Some(end) = self.end else {
            return false;
        };
        if time > end.time {
            self.end = None;
            return false;
        }
        if time == end.time || self.seen > 0 {
            self.seen += 1;
        }
        if self.seen == end.count {
            self.end = None;
        }
        true
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { time, count } = self.position;
        write!(f, "{}-{count}-{}", time.as_nanosecond(), self.pod)
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let read = || {
            let (time, rest) = text.split_once('-')?;
            let (count, pod) = rest.split_once('-')?;
            let time = Timestamp::from_nanosecond(time.parse().ok()?).ok()?;
            let count = count.parse().ok().filter(|count| *count > 0)?;
            Some(Self {
                position: Position { time, count },
                pod: pod.to_owned(),
            })
        };
        let short = text.len() <= MAX_CURSOR_BYTES;
        short.then(read).flatten().ok_or(InvalidCursor)
    }
}
