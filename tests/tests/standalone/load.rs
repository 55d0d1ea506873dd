//! Many clients at once. No answer may take longer than clients with a limit of ten seconds wait.

use std::collections::HashSet;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use serde_json::{Value, json};
use tests::clients::{HttpClient, V0};

use crate::fixture::{CALL_TIMEOUT, Fixture, text};

const CLIENTS: usize = 64;
/// `cleanup_remote_runtime.sh` stops that many at once.
const STOPS: usize = 16;

async fn list(fixture: &Fixture, wire: &HttpClient) -> Value {
    let url = format!("{}/list", fixture.api());
    wire.get(&url, CALL_TIMEOUT)
        .await
        .unwrap()
        .success()
        .unwrap()
}

/// Ends everything that is listed, as the cleanup script of the evaluation does.
async fn clean_up(fixture: &Fixture) -> usize {
    let wire = fixture.wire();
    let listed = list(fixture, &wire).await;
    let runtimes = listed["runtimes"].as_array().unwrap();
    assert_eq!(listed["total"], runtimes.len());
    let stops = stream::iter(runtimes).map(|runtime| {
        let body = json!({"runtime_id": text(runtime, "runtime_id")});
        let (wire, url) = (&wire, format!("{}/stop", fixture.api()));
        async move { wire.post(&url, &body, CALL_TIMEOUT).await.unwrap().status }
    });
    let statuses: Vec<_> = stops.buffer_unordered(STOPS).collect().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    runtimes.len()
}

#[tokio::test]
async fn clients_that_all_start_at_once_are_all_served_and_all_stopped() {
    let Some(fixture) = Fixture::set("load") else {
        return;
    };
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
        let calls = client.wire.calls();
        // The one before there was anything, and nothing else that is not good. A probe may time out on
        // a busy machine.
        let is_fine = |call: &&String| call.ends_with(" 200") || *call == "GET /alive -";
        let bad: Vec<_> = calls.iter().filter(|call| !is_fine(call)).collect();
        let sid = &client.config.sid;
        assert_eq!(
            bad,
            [&format!("GET /sessions/{sid} 404"), "POST /start 201"]
        );
    }
    assert_eq!(clean_up(&fixture).await, CLIENTS);
    let after = list(&fixture, &fixture.wire()).await;
    assert_eq!(after, json!({"runtimes": [], "total": 0}));
    for client in &clients {
        assert_eq!(
            fixture.session(&client.config.sid).await["status"],
            "stopped"
        );
    }
}
