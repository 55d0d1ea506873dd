//! What the proxy answers in each state of a sandbox, and how long it waits before. Without
//! sockets and on a paused clock.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::time::Duration;

use axum::body::Body;
use crds::sandbox::{Phase, SandboxStatus};
use http::Request;
use http::header::{HOST, RETRY_AFTER};
use serde_json::json;
use tokio::time::{Instant, timeout};

use support::world::{World, config, read, ready, sandbox, starting};

/// A world with one sandbox, and its id.
#[cfg(test)]
fn world_with(status: &SandboxStatus) -> (World, String) {
    let world = World::new();
    let made = world.api.put(&sandbox(&world.keys, 1));
    world.index.apply(&made).unwrap();
    let id = made.metadata.name.unwrap();
    world.report(&id, status);
    (world, id)
}

#[cfg(test)]
fn alive(id: &str) -> Request<Body> {
    let host = format!("{id}.rt.example.com");
    Request::get("/alive")
        .header(HOST, host)
        .body(Body::empty())
        .unwrap()
}

/// Status code, detail, and whether a retry is suggested.
#[cfg(test)]
async fn answer(world: &World, id: &str) -> (u16, String, bool) {
    let response = world.send(alive(id)).await;
    let retry = response.headers().contains_key(RETRY_AFTER);
    let (code, body) = read(response).await;
    (code, body["detail"].as_str().unwrap().to_owned(), retry)
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_nobody_can_reach_is_answered_for() {
    let failed = SandboxStatus {
        phase: Phase::Failed,
        ..ready("127.0.0.1")
    };
    for (status, code, detail) in [
        (starting(false), 503, "sandbox is not ready yet"),
        (failed, 503, "sandbox has failed"),
    ] {
        let (world, id) = world_with(&status);
        assert_eq!(answer(&world, &id).await, (code, detail.to_owned(), true));
    }
    let (world, id) = world_with(&ready("127.0.0.1"));
    world.post("/pause", &json!({"runtime_id": id})).await;
    let paused = (503, "sandbox is paused".to_owned(), true);
    assert_eq!(answer(&world, &id).await, paused);
    world.post("/stop", &json!({"runtime_id": id})).await;
    let stopped = (404, "sandbox is stopped".to_owned(), false);
    assert_eq!(answer(&world, &id).await, stopped);
    let unknown = (404, "no sandbox with this id".to_owned(), false);
    assert_eq!(answer(&world, "aaaaaaaaaaaaaaaa").await, unknown);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_held_no_longer_than_allowed() {
    let (world, id) = world_with(&starting(true));
    let start = Instant::now();
    let expired = (503, "sandbox did not come back in time".to_owned(), true);
    assert_eq!(answer(&world, &id).await, expired);
    assert_eq!(start.elapsed(), config().hold_limit);
}

#[tokio::test(start_paused = true)]
async fn a_held_request_ends_when_waiting_is_in_vain() {
    let (world, id) = world_with(&starting(true));
    let held = answer(&world, &id);
    tokio::pin!(held);
    let short = Duration::from_secs(5);
    assert!(timeout(short, &mut held).await.is_err());
    world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!(held.await.1, "sandbox is paused");
}

#[tokio::test(start_paused = true)]
async fn another_replicas_news_is_asked_for_before_a_refusal() {
    let (first, id) = world_with(&starting(false));
    let second = World::beside(&first.api, config());
    second.index.apply(&first.api.get(&id)).unwrap();
    // The first replica learns that it is ready, the second one not yet. Its request gets as far
    // as the Pod, where nobody listens.
    first.report(&id, &ready("127.0.0.1"));
    let (code, detail, _) = answer(&second, &id).await;
    assert_eq!(
        (code, &*detail),
        (
            502,
            "nothing accepts connections on this port of the sandbox"
        )
    );
    // One that is unknown here is found as well.
    let third = World::beside(&first.api, config());
    assert_eq!(answer(&third, &id).await.0, 502);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_up_is_not_called_unknown() {
    let world = World::new();
    world.api.set_away(true);
    let (code, detail, retry) = answer(&world, "aaaaaaaaaaaaaaaa").await;
    assert_eq!((code, retry), (503, true));
    assert_eq!(detail, "sandbox cannot be looked up at the moment");
}

#[tokio::test(start_paused = true)]
async fn two_lengths_are_refused() {
    let (world, id) = world_with(&ready("127.0.0.1"));
    let request = Request::post("/")
        .header(HOST, format!("{id}.rt.example.com"))
        .header("content-length", "1")
        .header("transfer-encoding", "chunked")
        .body(Body::from("x"));
    let (code, body) = read(world.send(request.unwrap()).await).await;
    assert_eq!(code, 400);
    let detail = "bad request: both Content-Length and Transfer-Encoding";
    assert_eq!(body, json!({"detail": detail}));
}
