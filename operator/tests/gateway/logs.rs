//! Output of sandboxes, `GET /runtime/{runtime_id}/logs`.

use std::time::Duration;

use axum::body::Body;
use crds::sandbox::{DesiredState, PodStatus, SandboxStatus};
use http::Request;
use operator::tenants::Tenants;
use serde_json::json;
use testing::{EventReader, FakeApi, ReceivedEvent};

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, limited, ready, recorded_tenants, starting,
};

const POD: &str = "pod-a";
/// Two lines have one time.
const LOG: [&str; 5] = [
    "2026-01-01T00:00:01.000000001Z one\n",
    "2026-01-01T00:00:01.000000002Z two\n",
    "2026-01-01T00:00:01.000000002Z three \u{1b}[31m\n",
    "2026-01-01T00:00:03Z four\n",
    "2026-01-01T00:00:04Z five\n",
];

fn running() -> SandboxStatus {
    SandboxStatus {
        pod_name: Some(POD.into()),
        ..ready("127.0.0.1")
    }
}

fn path_of(pod: &str) -> String {
    format!("/api/v1/namespaces/sandboxes/pods/{pod}/log")
}

/// A gateway, and the id of a sandbox of the first tenant.
fn with_sandbox(status: &SandboxStatus) -> (GatewayFixture, String) {
    let fixture = limited(&json!({"callsPerSecond": 0}));
    let id = fixture.add(1, status);
    (fixture, id)
}

/// As [`with_sandbox`], with a log of so many lines.
fn with_lines(count: usize) -> (GatewayFixture, String) {
    let (fixture, id) = with_sandbox(&running());
    fixture.write(count);
    (fixture, id)
}

fn texts(events: &[ReceivedEvent]) -> Vec<&str> {
    let lines = events.iter().filter(|event| event.name == "line");
    lines
        .map(|line| line.data["text"].as_str().unwrap())
        .collect()
}

fn reason(events: &[ReceivedEvent]) -> &str {
    events.last().unwrap().data["reason"].as_str().unwrap()
}

impl GatewayFixture {
    /// Sets the log to the first lines of [`LOG`].
    fn write(&self, count: usize) {
        self.api.set_log(&path_of(POD), &LOG[..count].concat());
    }

    async fn log(&self, id: &str, query: &str, after: Option<&str>) -> EventReader<Body> {
        let mut request = Request::get(format!("/runtime/{id}/logs?{query}"))
            .header("host", "api.example.com")
            .header("x-api-key", KEY);
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        EventReader::new(self.send(request.body(Body::empty()).unwrap()).await)
    }

    /// All events of a stream that ends by itself.
    async fn whole_log(&self, id: &str, query: &str, after: Option<&str>) -> Vec<ReceivedEvent> {
        self.log(id, query, after).await.until("end").await
    }

    fn pause(&self, id: &str) {
        let mut object = self.stored(id);
        object.spec.state = DesiredState::Paused;
        self.index.apply(&self.put(&object)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn log_is_its_tail_then_new_lines_then_the_reason_of_the_end() {
    let (fixture, id) = with_lines(3);
    let mut log = fixture.log(&id, "tail=2&follow=true", None).await;
    let mut events = vec![log.expect().await, log.expect().await];
    fixture.write(5);
    events.extend([log.expect().await, log.expect().await]);
    log.assert_quiet_for(Duration::from_mins(1)).await;
    assert!(log.comments >= 3, "one each 15 seconds");
    fixture.pause(&id);
    events.extend(log.until("end").await);
    log.assert_ends().await;
    let events: Vec<_> = events
        .iter()
        .map(|event| json!([event.name, event.id, event.data]))
        .collect();
    insta::assert_json_snapshot!("log_of_a_sandbox", events);
}

#[tokio::test(start_paused = true)]
async fn stream_continues_after_any_line_without_loss() {
    let (fixture, id) = with_lines(5);
    let all = fixture.whole_log(&id, "", None).await;
    assert_eq!((texts(&all).len(), reason(&all)), (5, "complete"));
    for (number, event) in all[..5].iter().enumerate() {
        let rest = fixture.whole_log(&id, "tail=1", event.id.as_deref()).await;
        assert_eq!(texts(&rest), texts(&all)[number + 1..], "after {number}");
        // One that saw less of the beginning has the same cursors.
        let tail = format!("tail={}", 5 - number);
        let tail = fixture.whole_log(&id, &tail, None).await;
        assert_eq!(tail[0], *event);
    }
    let foreign = "1767225601000000002-2-pod-b";
    let other = fixture.whole_log(&id, "tail=1", Some(foreign)).await;
    assert_eq!(texts(&other).len(), 5, "of another Pod: all of this one");
    let malformed = fixture.whole_log(&id, "tail=1", Some("1-1")).await;
    assert_eq!(texts(&malformed), ["five"]);
}

#[tokio::test(start_paused = true)]
async fn broken_connection_to_the_cluster_is_opened_again() {
    let (fixture, id) = with_lines(1);
    let mut log = fixture.log(&id, "follow=true", None).await;
    assert_eq!(log.expect().await.data["text"], "one");
    fixture.api.set_unavailable(true);
    log.assert_quiet_for(Duration::from_secs(20)).await;
    fixture.write(2);
    fixture.api.set_unavailable(false);
    assert_eq!(log.expect().await.data["text"], "two");
    fixture.api.set_unavailable(true);
    log.assert_quiet_for(Duration::from_secs(45)).await;
    let end = log.until("end").await;
    assert_eq!(reason(&end), "unavailable");
}

#[tokio::test(start_paused = true)]
async fn stream_waits_for_the_pod_and_ends_with_it() {
    let (fixture, id) = with_sandbox(&starting(false));
    assert_eq!(reason(&fixture.whole_log(&id, "", None).await), "starting");
    let mut log = fixture.log(&id, "tail=0&follow=true", None).await;
    log.assert_quiet_for(Duration::from_mins(2)).await;
    // The container has not started.
    fixture.api.fail([400, 400]);
    fixture.report(&id, &running());
    log.assert_quiet_for(Duration::from_secs(5)).await;
    fixture.write(2);
    assert_eq!(log.expect().await.data["text"], "one");
    let other = SandboxStatus {
        pod_name: Some("pod-b".into()),
        ..running()
    };
    fixture.report(&id, &other);
    let end = log.until("end").await;
    assert_eq!((texts(&end), reason(&end)), (vec!["two"], "replaced"));
}

#[tokio::test(start_paused = true)]
async fn log_of_sandbox_without_pod_ends_with_its_state() {
    let (fixture, id) = with_sandbox(&running());
    fixture.pause(&id);
    let paused = fixture.whole_log(&id, "follow=true", None).await;
    assert_eq!((paused.len(), reason(&paused)), (1, "paused"));
    fixture.change("/stop", &id).await;
    let stopped = fixture.whole_log(&id, "follow=true", None).await;
    assert_eq!((stopped.len(), reason(&stopped)), (1, "stopped"));
}

#[tokio::test(start_paused = true)]
async fn failed_sandbox_has_the_log_of_its_pod_or_its_kept_end() {
    let (fixture, id) = with_sandbox(&running());
    let status = SandboxStatus {
        pod_name: Some(POD.into()),
        sealed_log: fixture.keys.seal_log("sandboxes", &id, "kept\nend").ok(),
        ..failed(PodStatus::Failed)
    };
    fixture.report(&id, &status);
    let kept = fixture.whole_log(&id, "follow=true", None).await;
    assert_eq!(
        (texts(&kept), reason(&kept)),
        (vec!["kept", "end"], "failed")
    );
    assert!(kept[0].id.is_none() && kept[0].data["time"].is_null());
    fixture.write(1);
    let read = fixture.whole_log(&id, "follow=true", None).await;
    assert_eq!((texts(&read), reason(&read)), (vec!["one"], "failed"));
}

#[tokio::test(start_paused = true)]
async fn bad_requests_for_a_log_are_rejected() {
    let (fixture, id) = with_lines(1);
    let path = format!("/runtime/{id}/logs");
    for (key, query, expected) in [
        (KEY, "?tail=5001", 400),
        (KEY, "?tail=-1", 400),
        (KEY, "?follow=yes", 400),
        (KEY, "?follow=true&previous=true", 400),
        (OTHER_KEY, "", 404),
        ("wrong", "", 401),
    ] {
        let (code, _) = fixture
            .call_as(key, "GET", &format!("{path}{query}"), "")
            .await;
        assert_eq!(code, expected, "{key} {query}");
    }
    assert_eq!(fixture.get("/runtime/abcdefghijklmnop/logs").await.0, 404);
    let previous = fixture.whole_log(&id, "previous=true", None).await;
    assert_eq!((previous.len(), reason(&previous)), (1, "complete"));
}

#[tokio::test(start_paused = true)]
async fn logs_of_a_key_are_limited() {
    let (fixture, id) = with_lines(1);
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(fixture.log(&id, "follow=true", None).await);
    }
    let path = format!("/runtime/{id}/logs?follow=true");
    let (code, error) = fixture.get(&path).await;
    assert_eq!(code, 429, "{error}");
    open.pop();
    open.push(fixture.log(&id, "follow=true", None).await);
}

#[tokio::test(start_paused = true)]
async fn log_ends_when_its_key_is_revoked() {
    let tenants: Tenants = recorded_tenants(&json!({}));
    let fixture = GatewayFixture::synced(&FakeApi::default(), config(), tenants.clone());
    let id = fixture.add(1, &running());
    fixture.write(1);
    let mut log = fixture.log(&id, "follow=true", None).await;
    log.expect().await;
    tenants.replace(b"[]").unwrap();
    assert_eq!(log.next().await, None, "without an event");
}
