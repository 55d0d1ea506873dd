//! Requests to sandboxes that are not ready cost the API server and other sandboxes almost nothing.
//! Without sockets and on a paused clock.

use std::time::Duration;

use axum::body::Body;
use crds::sandbox::{Phase, SandboxStatus};
use http::Request;
use operator::gateway::GatewayConfig;

use crate::support::fake_api::FakeApi;
use crate::support::gateway_fixture::{GatewayFixture, config, key, read, ready, starting};

const BUSY: &str = "too many concurrent requests to this sandbox";

/// A gateway without sockets, and the id of its sandbox.
fn fixture_with(config: GatewayConfig, status: &SandboxStatus) -> (GatewayFixture, String) {
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    let id = fixture.add(1, status);
    (fixture, id)
}

async fn answer(fixture: &GatewayFixture, id: &str) -> (u16, String) {
    let host = format!("{id}.rt.example.com");
    let request = Request::get("/x").header("host", host).body(Body::empty());
    let (code, body) = read(fixture.send(request.unwrap()).await).await;
    (code, body["detail"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn requests_to_unavailable_sandbox_cause_one_lookup() {
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
        let (fixture, id) = fixture_with(config(), &status);
        if detail.ends_with("paused") {
            fixture.change("/pause", &id).await;
        }
        let before = fixture.api.calls().len();
        let answers = (0..1000).map(|_| answer(&fixture, &id));
        for answer in futures::future::join_all(answers).await {
            assert_eq!(answer, (503, detail.to_owned()));
        }
        assert_eq!(fixture.api.calls().len() - before, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        answer(&fixture, &id).await;
        assert_eq!(fixture.api.calls().len() - before, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn request_without_lookup_waits_for_index_update() {
    let (fixture, id) = fixture_with(config(), &starting(false));
    assert_eq!(answer(&fixture, &id).await.0, 503);
    let asked = fixture.api.calls().len();
    let second = answer(&fixture, &id);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    fixture.report(&id, &ready("127.0.0.1"));
    // It is forwarded to the Pod, where nothing listens.
    assert_eq!(second.await.0, 502);
    assert_eq!(fixture.api.calls().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn held_requests_count_as_requests_but_not_as_activity() {
    let mut config = config();
    config.max_requests_per_sandbox = 2;
    let (fixture, id) = fixture_with(config, &starting(true));
    let held = [answer(&fixture, &id), answer(&fixture, &id)];
    let held = futures::future::join_all(held);
    tokio::pin!(held);
    assert!(futures::poll!(&mut held).is_pending());
    let (code, detail) = answer(&fixture, &id).await;
    assert_eq!((code, &*detail), (503, BUSY));
    assert!(
        !fixture.gateway.traffic_of(&key(&id)).has_seen_request,
        "held requests are not traffic"
    );
    for (code, detail) in held.await {
        assert_eq!((code, &*detail), (503, "sandbox did not come back in time"));
    }
    let again = answer(&fixture, &id).await.1;
    assert_eq!(again, "sandbox did not come back in time");
}

#[tokio::test(start_paused = true)]
async fn limits_held_requests() {
    let mut config = config();
    config.max_held_requests = 3;
    let (fixture, id) = fixture_with(config, &starting(true));
    let mut answers: Vec<_> =
        futures::future::join_all((0..5).map(|_| answer(&fixture, &id))).await;
    answers.sort_unstable();
    let expired = (503, "sandbox did not come back in time".to_owned());
    let crowded = (503, "too many held requests".to_owned());
    assert_eq!(answers[..3], vec![expired; 3]);
    assert_eq!(answers[3..], vec![crowded; 2]);
    assert_eq!(fixture.gateway.metrics().held.get(), 0);
}
