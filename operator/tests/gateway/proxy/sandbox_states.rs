//! Responses of the proxy by state of the sandbox, how long requests are held, and how little they
//! cost the API server and other sandboxes. On a paused clock, unless sockets are needed.

use std::time::Duration;

use axum::body::Body;
use crds::contract::CONTROL_PORT;
use crds::contract::identity::IdentityKey;
use crds::sandbox::{PauseReason, Phase, SandboxStatus};
use futures::future::join_all;
use http::header::{HOST, RETRY_AFTER};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator::gateway::GatewayConfig;
use operator::kubernetes::health::WATCH_SILENCE_LIMIT;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, timeout};

use crate::support::gateway_fixture::{GatewayFixture, config, key, read, ready, starting};
use crate::support::socket_fixture::{OK, RawConnection};
use testing::FakeApi;

/// A fixture with one sandbox, and its id.
fn fixture_with(status: &SandboxStatus) -> (GatewayFixture, String) {
    configured(config(), status)
}

fn configured(config: GatewayConfig, status: &SandboxStatus) -> (GatewayFixture, String) {
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    let id = fixture.add(1, status);
    (fixture, id)
}

fn request(id: &str, path: &str) -> Request<Body> {
    let host = format!("{id}.rt.example.com");
    let request = Request::get(path).header(HOST, host);
    request.body(Body::empty()).unwrap()
}

/// Status code, detail, and whether a retry is suggested.
async fn answer_at(fixture: &GatewayFixture, id: &str, path: &str) -> (u16, String, bool) {
    let response = fixture.send(request(id, path)).await;
    let retry = response.headers().contains_key(RETRY_AFTER);
    let (code, body) = read(response).await;
    (code, body["detail"].as_str().unwrap().to_owned(), retry)
}

/// Answer to a probe.
async fn answer(fixture: &GatewayFixture, id: &str) -> (u16, String, bool) {
    answer_at(fixture, id, "/alive").await
}

/// Answer to a request that is not a probe, which is a 503 with this detail.
async fn assert_rejected(fixture: &GatewayFixture, id: &str, detail: &str) {
    let rejection = (503, detail.to_owned(), true);
    assert_eq!(answer_at(fixture, id, "/x").await, rejection);
}

/// Address outside of the networks of Pods: a request that is forwarded to it is answered with 502
/// without a connection.
const UNUSABLE: &str = "169.254.169.254";

const REFUSED: &str = "connection refused by this port of the sandbox";
const EXPIRED: &str = "sandbox did not come back in time";

#[tokio::test(start_paused = true)]
async fn unreachable_sandbox_gets_503_or_404_by_state() {
    let failed = SandboxStatus {
        phase: Phase::Failed,
        ..ready("127.0.0.1")
    };
    for (status, change, code, detail) in [
        (starting(false), None, 503, "sandbox is not ready yet"),
        (failed, None, 503, "sandbox has failed"),
        (ready("127.0.0.1"), Some("/pause"), 503, "sandbox is paused"),
        (ready("127.0.0.1"), Some("/stop"), 404, "sandbox is stopped"),
    ] {
        let (fixture, id) = fixture_with(&status);
        if let Some(change) = change {
            fixture.change(change, &id).await;
        }
        let expected = (code, detail.to_owned(), code == 503);
        let before = fixture.api.calls().len();
        let answers = (0..1000).map(|_| answer_at(&fixture, &id, "/x"));
        for answer in join_all(answers).await {
            assert_eq!(answer, expected);
        }
        // Requests that a lookup could help cause one in a while.
        let lookups = || fixture.api.calls().len() - before;
        assert_eq!(lookups(), usize::from(code == 503), "{detail}");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answer(&fixture, &id).await, expected);
        assert_eq!(lookups(), 2 * usize::from(code == 503), "{detail}");
    }
    let unknown = (404, "no sandbox with this id".to_owned(), false);
    let fixture = GatewayFixture::new();
    assert_eq!(answer(&fixture, "aaaaaaaaaaaaaaaa").await, unknown);
}

#[tokio::test(start_paused = true)]
async fn request_without_lookup_waits_for_index_update() {
    let (fixture, id) = fixture_with(&starting(false));
    assert_rejected(&fixture, &id, "sandbox is not ready yet").await;
    let asked = fixture.api.calls().len();
    let second = answer_at(&fixture, &id, "/x");
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    // It is forwarded to the Pod.
    fixture.report(&id, &ready(UNUSABLE));
    assert_eq!(second.await.0, 502);
    assert_eq!(fixture.api.calls().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn held_requests_count_as_requests_but_not_as_activity() {
    let mut config = config();
    config.max_requests_per_sandbox = 2;
    let (fixture, id) = configured(config, &starting(true));
    let held = join_all((0..2).map(|_| assert_rejected(&fixture, &id, EXPIRED)));
    tokio::pin!(held);
    assert!(futures::poll!(&mut held).is_pending());
    let busy = "too many concurrent requests to this sandbox";
    assert_rejected(&fixture, &id, busy).await;
    let traffic = fixture.gateway.traffic_of(&key(&id));
    assert!(!traffic.has_seen_request, "held requests are not traffic");
    held.await;
    assert_rejected(&fixture, &id, EXPIRED).await;
}

#[tokio::test(start_paused = true)]
async fn limits_held_requests() {
    let mut config = config();
    config.max_held_requests = 3;
    let (fixture, id) = configured(config, &starting(true));
    let mut answers = join_all((0..5).map(|_| answer_at(&fixture, &id, "/x"))).await;
    answers.sort_unstable();
    let rejection = |detail: &str| (503, detail.to_owned(), true);
    assert_eq!(answers[..3], vec![rejection(EXPIRED); 3]);
    assert_eq!(answers[3..], vec![rejection("too many held requests"); 2]);
    assert_eq!(fixture.gateway.metrics().held.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn held_request_expires_after_hold_limit() {
    let (fixture, id) = fixture_with(&starting(true));
    let start = Instant::now();
    assert_eq!(answer(&fixture, &id).await, (503, EXPIRED.to_owned(), true));
    assert_eq!(start.elapsed(), config().hold_limit);
}

#[tokio::test(start_paused = true)]
async fn held_request_ends_when_sandbox_is_paused() {
    let (fixture, id) = fixture_with(&starting(true));
    let held = answer(&fixture, &id);
    tokio::pin!(held);
    let short = Duration::from_secs(5);
    assert!(timeout(short, &mut held).await.is_err());
    fixture.change("/pause", &id).await;
    assert_eq!(held.await.1, "sandbox is paused");
}

#[tokio::test(start_paused = true)]
async fn probe_does_not_wake_idle_paused_sandbox() {
    let idle = SandboxStatus {
        phase: Phase::Paused,
        pause_reason: Some(PauseReason::Idle),
        paused_at: Some(Time(Timestamp::UNIX_EPOCH)),
        ..starting(true)
    };
    let (fixture, id) = fixture_with(&idle);
    let paused = (503, "sandbox is paused".to_owned(), true);
    assert_eq!(answer(&fixture, &id).await, paused);
    let calls = fixture.api.calls();
    let is_read = |(method, _): &(Method, String)| *method == Method::GET;
    assert!(calls.iter().all(is_read), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn rejection_is_confirmed_by_live_lookup() {
    let (first, id) = fixture_with(&starting(false));
    let second = GatewayFixture::beside(&first.api, config());
    second.index.apply(&first.stored(&id)).unwrap();
    // The first replica learns that it is ready, the second does not yet. Its request is forwarded
    // to the Pod.
    first.report(&id, &ready(UNUSABLE));
    let (code, detail, _) = answer(&second, &id).await;
    assert_eq!((code, &*detail), (502, REFUSED));
    // A sandbox that is unknown to this replica is found too.
    let third = GatewayFixture::beside(&first.api, config());
    assert_eq!(answer(&third, &id).await.0, 502);
}

#[tokio::test(start_paused = true)]
async fn address_is_confirmed_while_the_watch_is_silent() {
    let config = config();
    let vitals = config.vitals.clone();
    vitals.health.add_watch("sandboxes", String::new());
    let (fixture, id) = configured(config, &ready(UNUSABLE));
    // The watch does not report the deletion, after which the address may belong to another Pod.
    fixture.delete(&id);
    let before = fixture.api.calls().len();
    let lookups = || fixture.api.calls().len() - before;
    // Forwarded to the Pod.
    assert_eq!(answer(&fixture, &id).await.0, 502);
    assert_eq!(lookups(), 0);

    tokio::time::advance(WATCH_SILENCE_LIMIT + Duration::from_secs(1)).await;
    fixture.api.set_unavailable(true);
    for _ in 0..3 {
        let answers = join_all((0..100).map(|_| answer(&fixture, &id))).await;
        assert!(answers.iter().all(|(code, ..)| *code == 502), "{answers:?}");
    }
    assert_eq!(lookups(), 1, "the index answers");
    fixture.api.set_unavailable(false);
    tokio::time::advance(Duration::from_secs(5)).await;
    let answers = join_all((0..100).map(|_| answer(&fixture, &id))).await;
    assert!(answers.iter().all(|(code, ..)| *code == 404), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_lookup_returns_503_not_404() {
    let fixture = GatewayFixture::new();
    fixture.api.set_unavailable(true);
    let (code, detail, retry) = answer(&fixture, "aaaaaaaaaaaaaaaa").await;
    assert_eq!((code, retry), (503, true));
    assert_eq!(detail, "the sandbox cannot be looked up at the moment");
}

#[tokio::test(start_paused = true)]
async fn content_length_with_transfer_encoding_is_400() {
    let (fixture, id) = fixture_with(&ready("127.0.0.1"));
    let request = Request::post("/")
        .header(HOST, format!("{id}.rt.example.com"))
        .header("content-length", "1")
        .header("transfer-encoding", "chunked")
        .body(Body::from("x"));
    let (code, body) = read(fixture.send(request.unwrap()).await).await;
    assert_eq!(code, 400);
    let detail = "bad request: both Content-Length and Transfer-Encoding";
    assert_eq!(body, json!({"detail": detail}));
}

/// Became ready so long ago.
fn ready_since(seconds: f64) -> SandboxStatus {
    let ago = SignedDuration::from_secs_f64(seconds);
    SandboxStatus {
        ready_at: Some(Time(Timestamp::now() - ago)),
        ..ready("127.0.0.1")
    }
}

/// A command without `spec.ports` is ready as soon as it runs.
#[tokio::test]
async fn refused_connection_after_a_start_is_retried_until_the_port_listens() {
    // It refuses connections until it listens, and keeps the port from other tests.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let fixture = GatewayFixture::new();
    let id = fixture.add(address.port(), &ready_since(0.0));
    let server = async {
        // The first attempt was refused.
        while fixture.gateway.metrics().held.get() == 0 {
            tokio::task::yield_now().await;
        }
        let listener = socket.listen(1).unwrap();
        let mut gateway = accepted(&listener).await;
        gateway.head().await;
        gateway.send(OK).await;
    };
    let (response, ()) = tokio::join!(fixture.send(request(&id, "/alive")), server);
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn unusable_address_is_502() {
    // At the first one, the port does not listen in time; the others are not in networks of Pods.
    let outside = [UNUSABLE, "0.0.0.0", "224.0.0.1", "fe80::1"].map(ready);
    let cases = [ready_since(9.5)].into_iter().chain(outside);
    let answered = cases.map(async |status| {
        let (fixture, id) = fixture_with(&status);
        let (code, detail, _) = answer(&fixture, &id).await;
        assert_eq!(code, 502, "{:?}", status.pod_ip);
        assert_eq!(detail, REFUSED, "{:?}", status.pod_ip);
    });
    join_all(answered).await;
}

async fn accepted(listener: &TcpListener) -> RawConnection {
    RawConnection::new(listener.accept().await.unwrap().0)
}

/// Control port and sandbox server of one Pod.
struct ProvingPod {
    control: TcpListener,
    server: TcpListener,
    identity: IdentityKey,
}

impl ProvingPod {
    /// Answers one identity request.
    async fn prove(&self) {
        let ip = self.control.local_addr().unwrap().ip();
        let mut gateway = accepted(&self.control).await;
        let head = gateway.until("\n\n").await;
        let nonce = head
            .lines()
            .find_map(|l| l.strip_prefix("x-sandbox-nonce: "));
        let proof = self.identity.prove(ip, nonce.unwrap(), b"");
        let head = format!("HTTP/1.1 200 OK\nx-sandbox-proof: {proof}\nconnection: close\n");
        gateway.send(&format!("{head}content-length: 0\n\n")).await;
    }
}

/// A sandbox whose Pod at `ip` proves its address with the key of another one.
async fn fixture_with_pod(ip: &str) -> (GatewayFixture, String, ProvingPod) {
    let pod = ProvingPod {
        control: TcpListener::bind((ip, CONTROL_PORT)).await.unwrap(),
        server: TcpListener::bind((ip, 0)).await.unwrap(),
        identity: IdentityKey::new([0; 32]),
    };
    let fixture = GatewayFixture::new();
    let status = SandboxStatus {
        proves_address: true,
        ..ready(ip)
    };
    let id = fixture.add(pod.server.local_addr().unwrap().port(), &status);
    (fixture, id, pod)
}

#[tokio::test]
async fn requests_go_to_pods_that_prove_their_address() {
    let (fixture, id, mut pod) = fixture_with_pod("127.77.0.1").await;
    let uid = fixture.stored(&id).metadata.uid.unwrap();
    pod.identity = fixture.keys.of(None).identity_key(&uid);
    let server = async {
        let mut gateway = accepted(&pod.server).await;
        pod.prove().await;
        gateway.head().await;
        gateway.send(OK).await;
    };
    let (response, ()) = tokio::join!(fixture.send(request(&id, "/alive")), server);
    assert_eq!(response.status(), 200);
}

/// A Pod of another tenant has the address by now, while the index is behind.
#[tokio::test]
async fn another_pod_at_the_address_receives_nothing() {
    let (fixture, id, pod) = fixture_with_pod("127.77.0.2").await;
    let stand_in = async {
        loop {
            let mut gateway = accepted(&pod.server).await;
            pod.prove().await;
            assert_eq!(gateway.rest().await, "");
        }
    };
    tokio::select! {
        (code, ..) = answer(&fixture, &id) => assert_eq!(code, 502),
        () = stand_in => unreachable!(),
    }
}
