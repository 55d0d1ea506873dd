//! Readiness is true: many sandboxes start on a real node, and no client that is told `Ready`
//! meets anything else than a good answer (`docs/architecture.md`, invariant 1). This is item 2 of the
//! black-box checklist (`docs/specs/runtime-api.md`, section 8.1).

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tests::clients::HttpClient;
use tests::fake_agent_server;
use tests::size::full_or;

use crate::fixture::{Fixture, fixture, start_body, text};

/// Concurrency that a small machine can take.
const CONCURRENCY: usize = 8;

/// Most with the native executor, whose image is not copied for each, some with another server.
fn body(sid: &str, number: usize) -> Value {
    if number.is_multiple_of(10) {
        let command = "/usr/local/bin/openhands-agent-server --port 60000";
        return json!({"session_id": sid, "image": fake_agent_server::IMAGE, "command": command});
    }
    start_body(sid)
}

/// Starts a sandbox, polls runtime and session in turn without a pause, sends requests the moment it is
/// said to be ready, and stops it. How many polls came before.
async fn start_and_check(fixture: &Fixture, number: usize) -> usize {
    let sid = format!("s{number}");
    let (status, info) = fixture.post("start", &body(&sid, number)).await;
    assert_eq!(status, 201, "{info}");
    let (id, url) = (text(&info, "runtime_id"), text(&info, "url"));
    let paths = [format!("/runtime/{id}"), format!("/sessions/{sid}")];
    let (mut seen, mut polls) = (info, 0);
    while seen["pod_status"] != "Ready" {
        assert_ne!(seen["status"], "running", "{seen}");
        seen = fixture.get(&paths[polls % 2]).await;
        polls += 1;
    }
    assert_eq!(seen["status"], "running", "{seen}");
    // The native executor has no `/health`.
    let count = if number.is_multiple_of(10) { 2 } else { 1 };
    for probe in ["/alive", "/health"].iter().take(count) {
        let alive = HttpClient::anonymous().get(&format!("{url}{probe}")).await;
        assert_eq!(alive.status, 200, "{probe}: ready after {polls} polls");
    }
    let (status, _) = fixture.post("stop", &json!({"runtime_id": id})).await;
    assert_eq!(status, 200);
    polls
}

#[tokio::test]
async fn ready_is_true_in_real_starts() {
    let Some(fixture) = fixture() else { return };
    let count = full_or(200, 60);
    let starts = stream::iter(0..count).map(|number| start_and_check(&fixture, number));
    let polls: Vec<_> = starts.buffer_unordered(CONCURRENCY).collect().await;
    assert_eq!(polls.len(), count);
    println!("polls before ready: {}", polls.iter().sum::<usize>());
}
