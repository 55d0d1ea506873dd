//! Requests that a sandbox is not ready for: however many they are, they cost the API server and all
//! other sandboxes next to nothing. Without sockets and on a paused clock.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::time::Duration;

use axum::body::Body;
use crds::sandbox::{Phase, SandboxStatus};
use http::Request;
use operator::gateway::GatewayConfig;
use operator::index::Key;
use serde_json::json;

use support::fake_api::FakeApi;
use support::world::{World, config, read, ready, sandbox, starting};

const BUSY: &str = "sandbox has too many requests under way";

/// A gateway without sockets, and the id of its sandbox.
#[cfg(test)]
fn world_with(config: GatewayConfig, status: &SandboxStatus) -> (World, String) {
    let world = World::beside(&FakeApi::default(), config);
    let made = world.api.put(&sandbox(&world.keys, 1));
    world.index.apply(&made).unwrap();
    let id = made.metadata.name.unwrap();
    world.report(&id, status);
    (world, id)
}

#[cfg(test)]
async fn answer(world: &World, id: &str) -> (u16, String) {
    let host = format!("{id}.rt.example.com");
    let request = Request::get("/x").header("host", host).body(Body::empty());
    let (code, body) = read(world.send(request.unwrap()).await).await;
    (code, body["detail"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_sandbox_that_is_away_cost_the_api_server_next_to_nothing() {
    let paused = ready("127.0.0.1");
    let failed = SandboxStatus {
        phase: Phase::Failed,
        ..ready("127.0.0.1")
    };
    for (status, detail) in [
        (paused, "sandbox is paused"),
        (failed, "sandbox has failed"),
        (starting(false), "sandbox is not ready yet"),
    ] {
        let (world, id) = world_with(config(), &status);
        if detail.ends_with("paused") {
            world.post("/pause", &json!({"runtime_id": id})).await;
        }
        let before = world.api.calls().len();
        let answers = (0..1000).map(|_| answer(&world, &id));
        for answer in futures::future::join_all(answers).await {
            assert_eq!(answer, (503, detail.to_owned()));
        }
        assert_eq!(world.api.calls().len() - before, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        answer(&world, &id).await;
        assert_eq!(world.api.calls().len() - before, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_ask_the_api_server_hears_of_a_start_all_the_same() {
    let (world, id) = world_with(config(), &starting(false));
    assert_eq!(answer(&world, &id).await.0, 503);
    let asked = world.api.calls().len();
    let second = answer(&world, &id);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    world.report(&id, &ready("127.0.0.1"));
    // As far as the Pod, where nobody listens.
    assert_eq!(second.await.0, 502);
    assert_eq!(world.api.calls().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_sandbox_are_its_requests_and_no_work() {
    let mut config = config();
    config.proxy.requests_per_sandbox = 2;
    let (world, id) = world_with(config, &starting(true));
    let held = [answer(&world, &id), answer(&world, &id)];
    let held = futures::future::join_all(held);
    tokio::pin!(held);
    assert!(futures::poll!(&mut held).is_pending());
    let (code, detail) = answer(&world, &id).await;
    assert_eq!((code, &*detail), (503, BUSY));
    let key = Key {
        namespace: "sandboxes".into(),
        name: id.clone(),
    };
    assert!(!world.gateway.seen(&key).seen, "nobody has come through");
    for (code, detail) in held.await {
        assert_eq!((code, &*detail), (503, "sandbox did not come back in time"));
    }
    let again = answer(&world, &id).await.1;
    assert_eq!(again, "sandbox did not come back in time");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_requests_wait_at_all() {
    let mut config = config();
    config.proxy.held_requests = 3;
    let (world, id) = world_with(config, &starting(true));
    let mut answers: Vec<_> = futures::future::join_all((0..5).map(|_| answer(&world, &id))).await;
    answers.sort_unstable();
    let expired = (503, "sandbox did not come back in time".to_owned());
    let crowded = (503, "too many requests wait for their sandboxes".to_owned());
    assert_eq!(answers[..3], vec![expired; 3]);
    assert_eq!(answers[3..], vec![crowded; 2]);
    assert_eq!(world.gateway.metrics().held.get(), 0);
}
