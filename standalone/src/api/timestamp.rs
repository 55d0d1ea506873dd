//! Timestamps in whole seconds, as Kubernetes writes them.

use std::time::Duration;

use jiff::{Timestamp, fmt::strtime};
use operator::clock::{Clock, later};

/// Current time as `creationTimestamp`.
pub(crate) fn stamp(clock: &Clock) -> String {
    format_seconds(clock.now())
}

/// Timestamp `seconds` from now.
pub(crate) fn stamp_in(clock: &Clock, seconds: u64) -> String {
    format_seconds(later(clock.now(), Duration::from_secs(seconds)))
}

fn format_seconds(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stamp_has_whole_seconds() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.5Z".parse().unwrap());
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(stamp(&clock), "2026-01-01T00:01:30Z");
        assert_eq!(stamp_in(&clock, 30), "2026-01-01T00:02:00Z");
    }
}
