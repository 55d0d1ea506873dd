//! Item 8: bursts of requests.

use std::collections::HashSet;

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tests::clients::V0;
use tests::size::full_or;

use crate::fixture::{CALL_TIMEOUT, fixture, text};

/// Clients that all connect at once, and the cleanup script of the evaluation, which stops 16 at a
/// time what is listed. No answer takes longer than clients wait.
#[tokio::test]
async fn item_8_bursts_of_starts_and_stops_are_all_accepted() {
    let Some(fixture) = fixture() else { return };
    let count = full_or(64, 24);
    let clients = (0..count).map(|number| {
        let mut config = fixture.v0(&format!("instance-{number}"));
        config.api_timeout = CALL_TIMEOUT;
        async move {
            let mut client = V0::new(config);
            client.connect().await.unwrap();
            client
        }
    });
    let clients = join_all(clients).await;
    let ids: HashSet<_> = clients.iter().map(V0::id).collect();
    assert_eq!(ids.len(), count);
    for client in &clients {
        let mut calls = client.wire.calls();
        // The one before there was anything, and nothing else that is not good. A probe may time out on
        // a busy machine.
        calls.retain(|call| !call.ends_with(" 200") && call != "GET /alive -");
        let unknown = format!("GET /sessions/{} 404", client.config.sid);
        assert_eq!(calls, [&unknown, "POST /start 201"]);
    }
    let listed = fixture.get("/list").await;
    assert_eq!(listed["total"], count);
    let stops = stream::iter(listed["runtimes"].as_array().unwrap()).map(async |runtime| {
        let body = json!({"runtime_id": text(runtime, "runtime_id")});
        fixture.post("stop", &body).await.0
    });
    let statuses: Vec<_> = stops.buffer_unordered(16).collect().await;
    assert_eq!(statuses, vec![200; count]);
    let after = fixture.get("/list").await;
    assert_eq!(after, json!({"runtimes": [], "total": 0}));
    for client in &clients {
        let info = fixture.session(&client.config.sid).await;
        assert_eq!(info["status"], "stopped");
    }
}
