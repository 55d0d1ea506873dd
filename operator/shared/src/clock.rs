//! Source of the current time. Processes read the wall clock, which is right after a suspend; tests
//! derive it from tokio's clock, so that deadlines and timestamps advance together.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall clock or virtual clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Source);

#[derive(Debug, Clone, Copy)]
enum Source {
    Wall,
    Virtual { start: Timestamp, since: Instant },
}

impl Clock {
    pub fn wall() -> Self {
        Self(Source::Wall)
    }

    /// Returns a clock that starts at `start` and follows tokio's clock, which tests can pause.
    pub fn starting_at(start: Timestamp) -> Self {
        let since = Instant::now();
        Self(Source::Virtual { start, since })
    }

    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Wall => Timestamp::now(),
            Source::Virtual { start, since } => later(start, since.elapsed()),
        }
    }
}

/// Adds a duration to a time, saturating at the maximum.
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
    fn later_saturates_at_maximum() {
        assert_eq!(later(Timestamp::UNIX_EPOCH, Duration::MAX), Timestamp::MAX);
    }
}
