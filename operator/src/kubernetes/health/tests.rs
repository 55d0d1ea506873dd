//! What health says, in virtual time.

use tokio::time::advance;

use super::*;

fn health() -> Health {
    let health = Health::default();
    health.begin("sandboxes", "sandboxes.openhands.dev".into());
    health.begin("pods", "pods".into());
    health
}

fn listed() -> Health {
    let health = health();
    for resource in ["sandboxes", "pods"] {
        health.heard(resource);
        health.listed(resource);
    }
    health
}

#[tokio::test(start_paused = true)]
async fn ready_is_who_has_listed_everything() {
    let health = health();
    assert_eq!(
        health.missing(),
        [
            "pods have not been listed yet",
            "sandboxes have not been listed yet"
        ]
    );
    assert!(listed().missing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_until_it_is_there() {
    let health = listed();
    health.failed("sandboxes", Trouble::NotInstalled);
    health.failed("pods", Trouble::Forbidden("pods is forbidden".into()));
    health.lacks("root key", "no root key".into());
    assert_eq!(
        health.missing(),
        [
            "no root key",
            "may not list pods: pods is forbidden",
            "CRD sandboxes.openhands.dev is not installed"
        ]
    );
    health.has("root key");
    health.heard("pods");
    health.heard("sandboxes");
    assert!(health.missing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_api_server_is_said_once_and_dated_from_the_first_miss() {
    let health = listed();
    health.failed("pods", Trouble::Unreachable("refused".into()));
    advance(Duration::from_secs(7)).await;
    health.failed("sandboxes", Trouble::Unreachable("timed out".into()));
    health.failed("pods", Trouble::Unreachable("refused".into()));
    assert_eq!(
        health.missing(),
        ["the API server has not answered for 7 s: refused"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_keeps_trying_is_alive_and_its_news_age() {
    let health = listed();
    for _ in 0..20 {
        advance(Duration::from_mins(1)).await;
        health.tried("pods");
        health.failed("pods", Trouble::Unreachable("refused".into()));
        health.heard("sandboxes");
    }
    assert!(health.stuck().is_empty());
    let ages = health.ages();
    assert_eq!(
        ages,
        [
            ("pods", Duration::from_mins(20)),
            ("sandboxes", Duration::ZERO)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_nothing_is_stuck() {
    let health = listed();
    advance(STUCK_AFTER).await;
    assert!(health.stuck().is_empty());
    advance(Duration::from_secs(1)).await;
    health.heard("sandboxes");
    assert_eq!(
        health.stuck(),
        ["the watch of pods has been stuck for 601 s"]
    );
}

#[tokio::test(start_paused = true)]
async fn checks_count_for_liveness_and_a_stop_for_readiness() {
    let health = listed();
    health.check(|| Some("the queue does not move".into()));
    assert_eq!(health.stuck(), ["the queue does not move"]);
    health.stop();
    assert_eq!(health.missing(), ["shutting down"]);
}
