//! Items 6, 7, 8 and 10: what is asked of the API, and what it lists.

use std::collections::HashSet;

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tests::clients::V0;

use crate::fixture::{CALL_TIMEOUT, fixture, text};

#[tokio::test]
async fn item_6_null_ids_are_ignored_and_unknown_ones_not_found() {
    let Some(fixture) = fixture() else { return };
    for verb in ["stop", "pause"] {
        for nothing in [json!({"runtime_id": null}), json!({})] {
            let (status, body) = fixture.post(verb, &nothing).await;
            assert_eq!((status, body.is_object()), (200, true), "{verb}: {body}");
        }
    }
    let unknown = json!({"runtime_id": "kqzvbnwmxatyploe"});
    for verb in ["stop", "pause", "resume"] {
        let (status, body) = fixture.post(verb, &unknown).await;
        let said = (status, body["detail"].is_string());
        assert_eq!(said, (404, true), "{verb}: {body}");
    }
}

#[tokio::test]
async fn item_7_lists_have_live_sandboxes_and_batches_are_positional() {
    let Some(fixture) = fixture() else { return };
    let mut ids = Vec::new();
    for sid in ["runs", "paused", "stopped"] {
        let (_, info) = fixture.start(sid, &json!({})).await;
        ids.push(json!({"runtime_id": info["runtime_id"]}));
    }
    fixture.post("pause", &ids[1]).await;
    fixture.post("stop", &ids[2]).await;
    // One that kubectl made has no session, as a member of a warm pool has none.
    fixture.kubectl("apply -f manifests/samples/sandbox.yaml");
    let list = fixture.get("/list").await;
    assert_eq!(list["total"], 1, "{list}");
    assert_eq!(list["runtimes"].as_array().unwrap().len(), 1);
    assert_eq!(list["runtimes"][0]["session_id"], "runs");

    let mut asked: Vec<String> = (0..200).map(|n| format!("nobody{n}")).collect();
    for (at, sid) in [(7, "runs"), (100, "paused"), (199, "stopped")] {
        asked[at] = sid.into();
    }
    let path = format!("/sessions/batch?ids={}", asked.join("&ids="));
    let batch = fixture.get(&path).await;
    let batch = batch.as_array().unwrap();
    assert_eq!(batch.len(), 200);
    for (sid, entry) in asked.iter().zip(batch) {
        if sid.starts_with("nobody") {
            assert!(entry.is_null(), "{sid}: {entry}");
        } else {
            assert_eq!(entry["session_id"], sid.as_str());
        }
    }
    assert_eq!(fixture.get("/sessions/batch").await, json!([]));
}

/// Clients that all connect at once, and the cleanup script of the evaluation, which stops 16 at a
/// time what is listed. No answer takes longer than clients wait.
#[tokio::test]
async fn item_8_bursts_of_starts_and_stops_are_all_accepted() {
    const CLIENTS: usize = 64;
    let Some(fixture) = fixture() else { return };
    let clients = (0..CLIENTS).map(|number| {
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
    assert_eq!(ids.len(), CLIENTS);
    for client in &clients {
        let mut calls = client.wire.calls();
        // The one before there was anything, and nothing else that is not good. A probe may time out on
        // a busy machine.
        calls.retain(|call| !call.ends_with(" 200") && call != "GET /alive -");
        let unknown = format!("GET /sessions/{} 404", client.config.sid);
        assert_eq!(calls, [&unknown, "POST /start 201"]);
    }
    let listed = fixture.get("/list").await;
    assert_eq!(listed["total"], CLIENTS);
    let stops = stream::iter(listed["runtimes"].as_array().unwrap()).map(async |runtime| {
        let body = json!({"runtime_id": text(runtime, "runtime_id")});
        fixture.post("stop", &body).await.0
    });
    let statuses: Vec<_> = stops.buffer_unordered(16).collect().await;
    assert_eq!(statuses, [200; CLIENTS]);
    let after = fixture.get("/list").await;
    assert_eq!(after, json!({"runtimes": [], "total": 0}));
    for client in &clients {
        let info = fixture.session(&client.config.sid).await;
        assert_eq!(info["status"], "stopped");
    }
}

#[tokio::test]
async fn item_10_commands_factors_and_classes_of_all_kinds() {
    let Some(fixture) = fixture() else { return };
    let words = json!(["/usr/local/bin/openhands-agent-server", "--port", "60000"]);
    let line = json!("/usr/local/bin/openhands-agent-server --port 60000");
    let odd = json!({"environment": {"N": 1, "B": true, "X": null}, "field_of_tomorrow": [1]});
    let cases: [(&str, Value); 6] = [
        ("list", json!({"command": words})),
        ("line", json!({"command": line, "resource_factor": 1})),
        ("factor", json!({"resource_factor": 4.0})),
        ("sysbox", json!({"runtime_class": "sysbox-runc"})),
        ("gvisor", json!({"runtime_class": "gvisor"})),
        ("odd", odd),
    ];
    for (sid, more) in &cases {
        let (status, info) = fixture.start(sid, more).await;
        assert_eq!(status, 201, "{sid}: {info}");
    }
    for (sid, more) in &cases {
        let info = fixture.ready(sid).await;
        let command = more.get("command").unwrap_or(&words);
        assert_eq!(&info["command"], command, "{sid}");
    }
    assert_eq!(fixture.session("factor").await["resource_factor"], 4.0);
}
