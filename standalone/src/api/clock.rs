//! The one source of time stamps. A laptop that slept must not hand out yesterday's time, so the product reads the
//! wall clock; a test that pauses tokio must see deletion times move with it, so tests count from a fixed instant.

use jiff::{SignedDuration, Timestamp, fmt::strtime};
use tokio::time::Instant;

/// Where the API reads the time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
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
        Self(Source::Virtual {
            start,
            since: Instant::now(),
        })
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Wall => Timestamp::now(),
            Source::Virtual { start, since } => advance(*start, since.elapsed()),
        }
    }

    /// Now in the form of `creationTimestamp`: whole seconds.
    pub(crate) fn stamp(&self) -> String {
        format_seconds(self.now())
    }

    /// The stamp `seconds` from now.
    pub(crate) fn stamp_in(&self, seconds: u64) -> String {
        format_seconds(advance(self.now(), std::time::Duration::from_secs(seconds)))
    }
}

fn advance(time: Timestamp, by: std::time::Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn format_seconds(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_follows_tokio() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.stamp(), "2026-01-01T00:01:30Z");
        assert_eq!(clock.stamp_in(30), "2026-01-01T00:02:00Z");
    }
}
