//! Health reports in virtual time.

use tokio::time::advance;

use super::*;

fn health() -> Health {
    let health = Health::default();
    health.add_watch("sandboxes", "sandboxes.openhands.dev".into());
    health.add_watch("pods", "pods".into());
    health
}

fn listed() -> Health {
    let health = health();
    for resource in ["sandboxes", "pods"] {
        health.watch_heard(resource);
        health.watch_listed(resource);
    }
    health
}

#[tokio::test(start_paused = true)]
async fn unreachable_api_server_is_reported_once_since_first_failure() {
    let health = listed();
    health.watch_failed("pods", WatchFailure::Unreachable("refused".into()));
    advance(Duration::from_secs(7)).await;
    health.watch_failed("sandboxes", WatchFailure::Unreachable("timed out".into()));
    health.watch_failed("pods", WatchFailure::Unreachable("refused".into()));
    let problem = "the API server has not responded for 7 s: refused";
    assert_eq!(health.readiness_failures(), [problem]);
}

#[tokio::test(start_paused = true)]
async fn failing_watch_is_a_warning_when_stale_data_is_served() {
    let health = health();
    health.serve_while_stale();
    health.watch_heard("pods");
    health.watch_listed("pods");
    let failure = || WatchFailure::Unreachable("refused".into());
    health.watch_failed("pods", failure());
    health.watch_failed("sandboxes", failure());
    let problem = "the API server has not responded for 0 s: refused";
    assert_eq!(health.readiness_failures(), [problem]);
    health.watch_heard("sandboxes");
    health.watch_listed("sandboxes");
    assert!(health.readiness_failures().is_empty());
    assert_eq!(health.warnings(), [problem]);
    health.begin_shutdown();
    assert_eq!(health.readiness_failures(), ["shutting down"]);
}

#[tokio::test(start_paused = true)]
async fn retrying_watch_is_alive_and_its_age_grows() {
    let health = listed();
    for _ in 0..20 {
        advance(Duration::from_mins(1)).await;
        health.watch_attempted("pods");
        health.watch_failed("pods", WatchFailure::Unreachable("refused".into()));
        health.watch_heard("sandboxes");
    }
    assert!(health.liveness_failures().is_empty());
    let (pods, sandboxes) = (Duration::from_mins(20), Duration::ZERO);
    assert_eq!(
        health.watch_ages(),
        [("pods", pods), ("sandboxes", sandboxes)]
    );
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_stuck() {
    let health = listed();
    let freshness = health.freshness("pods");
    advance(WATCH_SILENCE_LIMIT).await;
    assert!(!freshness.is_stale());
    advance(WATCH_STUCK_TIMEOUT.saturating_sub(WATCH_SILENCE_LIMIT)).await;
    assert!(freshness.is_stale());
    assert!(health.liveness_failures().is_empty());
    advance(Duration::from_secs(1)).await;
    health.watch_heard("sandboxes");
    let stuck = "the watch of pods has been stuck for 601 s";
    assert_eq!(health.liveness_failures(), [stuck]);
}
