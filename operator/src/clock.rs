//! The time of day, moved by tokio's clock: on a paused clock, deadlines and timestamps pass
//! together, so that tests of days run in milliseconds.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A wall clock that is read once and then follows tokio's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    wall: Timestamp,
}

impl Clock {
    /// A clock for this process.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
            wall: Timestamp::now(),
        }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::ZERO);
        self.wall.saturating_add(elapsed).unwrap_or(self.wall)
    }
}
