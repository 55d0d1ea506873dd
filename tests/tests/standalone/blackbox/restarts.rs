//! Item 13: the server goes and comes back in the middle of everything.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::clients::{ClientException, HttpClient, Reply};
use tests::fake_agent_server;
use tokio::time::{Instant, sleep};

use crate::fixture::{CALL_TIMEOUT, Fixture, fixture, start, text};

/// A client that tries again while nothing accepts its connection, and takes nothing else than 2xx.
async fn insist<F>(send: impl Fn() -> F) -> Value
where
    F: Future<Output = Result<Reply, ClientException>>,
{
    let end = Instant::now() + 6 * CALL_TIMEOUT;
    loop {
        match send().await {
            Ok(reply) => return reply.success().unwrap(),
            Err(error) => assert!(Instant::now() < end, "{error:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Polls a session for as long as the world turns, and fails at the first answer that is not 2xx.
async fn poll(wire: HttpClient, url: Arc<str>) {
    loop {
        insist(|| wire.try_get(&url, CALL_TIMEOUT)).await;
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn item_13_clients_survive_restarts_during_start_pause_and_resume() {
    let Some(fixture) = fixture() else { return };
    // The process ends before its directory is removed.
    let Fixture {
        state,
        mut standalone,
    } = fixture;
    let (api, wire) = (
        standalone.api().to_owned(),
        HttpClient::new(standalone.key()),
    );
    let body = json!({
        "session_id": "s", "image": fake_agent_server::IMAGE, "working_dir": "/workspace",
        "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"],
    });
    let post = async |verb: &str, body: &Value| {
        let url = format!("{api}/{verb}");
        insist(|| wire.try_post(&url, body, CALL_TIMEOUT)).await
    };
    let session: Arc<str> = format!("{api}/sessions/s").into();
    let first = post("start", &body).await;
    let poller = tokio::spawn(poll(wire.clone(), session.clone()));
    let id = json!({"runtime_id": first["runtime_id"]});
    for (verb, wanted) in [
        ("start", "running"),
        ("pause", "paused"),
        ("resume", "running"),
    ] {
        let sent = if verb == "start" { &body } else { &id };
        let answered = post(verb, sent).await;
        assert_eq!(answered["runtime_id"], first["runtime_id"]);
        standalone.kill();
        standalone = start(state.path(), &["--url-form", "nested"]);
        let settled = converge(&wire, &session, wanted).await;
        for field in ["url", "session_api_key", "runtime_id"] {
            assert_eq!(settled[field], first[field], "{field} after {verb}");
        }
    }
    assert!(!poller.is_finished(), "{:?}", poller.await);
    let alive = format!("{}/alive", text(&first, "url"));
    assert_eq!(wire.get(&alive).await.status, 200);
}

async fn converge(wire: &HttpClient, session: &str, wanted: &str) -> Value {
    let end = Instant::now() + 6 * CALL_TIMEOUT;
    loop {
        let info = insist(|| wire.try_get(session, CALL_TIMEOUT)).await;
        if info["status"] == wanted {
            return info;
        }
        assert!(Instant::now() < end, "{info}");
        sleep(Duration::from_millis(20)).await;
    }
}
