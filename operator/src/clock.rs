//! The time of day. The product reads the wall clock, so that a machine that slept is not behind;
//! tests count from a fixed moment with tokio's clock, so that deadlines and timestamps pass
//! together and days run in milliseconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the time is read.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Source);

#[derive(Debug, Clone, Copy)]
enum Source {
    Wall,
    Virtual { start: Timestamp, since: Instant },
}

impl Clock {
    /// The machine's clock.
    pub fn wall() -> Self {
        Self(Source::Wall)
    }

    /// `start` now, and from then on as fast as tokio's clock, which tests pause and advance.
    pub fn starting_at(start: Timestamp) -> Self {
        let since = Instant::now();
        Self(Source::Virtual { start, since })
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Wall => Timestamp::now(),
            Source::Virtual { start, since } => later(start, since.elapsed()),
        }
    }
}

/// A moment after another one; the last one there is if it would be beyond.
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_follows_tokio() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().as_second(), 90);
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        assert_eq!(later(Timestamp::UNIX_EPOCH, Duration::MAX), Timestamp::MAX);
    }
}
