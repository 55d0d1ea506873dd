//! Responses of the proxy by state of the sandbox, and how long requests are held. Without sockets
//! and on a paused clock.

use std::time::Duration;

use axum::body::Body;
use crds::contract::CONTROL_PORT;
use crds::contract::identity::IdentityKey;
use crds::sandbox::{PauseReason, Phase, SandboxStatus};
use http::header::{HOST, RETRY_AFTER};
use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::support::gateway_fixture::{GatewayFixture, config, read, ready, starting};

/// A fixture with one sandbox, and its id.
fn fixture_with(status: &SandboxStatus) -> (GatewayFixture, String) {
    let fixture = GatewayFixture::new();
    let id = fixture.add(1, status);
    (fixture, id)
}

fn alive(id: &str) -> Request<Body> {
    let host = format!("{id}.rt.example.com");
    Request::get("/alive")
        .header(HOST, host)
        .body(Body::empty())
        .unwrap()
}

/// Status code, detail, and whether a retry is suggested.
async fn answer(fixture: &GatewayFixture, id: &str) -> (u16, String, bool) {
    let response = fixture.send(alive(id)).await;
    let retry = response.headers().contains_key(RETRY_AFTER);
    let (code, body) = read(response).await;
    (code, body["detail"].as_str().unwrap().to_owned(), retry)
}

#[tokio::test(start_paused = true)]
async fn unreachable_sandbox_gets_503_or_404_by_state() {
    let failed = SandboxStatus {
        phase: Phase::Failed,
        ..ready("127.0.0.1")
    };
    for (status, code, detail) in [
        (starting(false), 503, "sandbox is not ready yet"),
        (failed, 503, "sandbox has failed"),
    ] {
        let (fixture, id) = fixture_with(&status);
        assert_eq!(answer(&fixture, &id).await, (code, detail.to_owned(), true));
    }
    let (fixture, id) = fixture_with(&ready("127.0.0.1"));
    fixture.change("/pause", &id).await;
    let paused = (503, "sandbox is paused".to_owned(), true);
    assert_eq!(answer(&fixture, &id).await, paused);
    fixture.change("/stop", &id).await;
    let stopped = (404, "sandbox is stopped".to_owned(), false);
    assert_eq!(answer(&fixture, &id).await, stopped);
    let unknown = (404, "no sandbox with this id".to_owned(), false);
    assert_eq!(answer(&fixture, "aaaaaaaaaaaaaaaa").await, unknown);
}

#[tokio::test(start_paused = true)]
async fn held_request_expires_after_hold_limit() {
    let (fixture, id) = fixture_with(&starting(true));
    let start = Instant::now();
    let expired = (503, "sandbox did not come back in time".to_owned(), true);
    assert_eq!(answer(&fixture, &id).await, expired);
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
    assert!(
        calls.iter().all(|(method, _)| *method == Method::GET),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rejection_is_confirmed_by_live_lookup() {
    let (first, id) = fixture_with(&starting(false));
    let second = GatewayFixture::beside(&first.api, config());
    second.index.apply(&first.api.get(&id)).unwrap();
    // The first replica learns that it is ready, the second does not yet. Its request reaches the
    // Pod, where nothing listens.
    first.report(&id, &ready("127.0.0.1"));
    let (code, detail, _) = answer(&second, &id).await;
    assert_eq!(
        (code, &*detail),
        (502, "connection refused by this port of the sandbox")
    );
    // A sandbox that is unknown to this replica is found too.
    let third = GatewayFixture::beside(&first.api, config());
    assert_eq!(answer(&third, &id).await.0, 502);
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

/// Time of the sandbox's readiness: now.
fn just_ready(ip: &str) -> SandboxStatus {
    SandboxStatus {
        ready_at: Some(Time(Timestamp::now())),
        ..ready(ip)
    }
}

/// A command without `spec.ports` is ready as soon as it runs.
#[tokio::test(start_paused = true)]
async fn refused_connection_after_a_start_is_retried_until_the_port_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fixture = GatewayFixture::new();
    let id = fixture.add(address.port(), &just_ready("127.0.0.1"));
    let request = fixture.send(alive(&id));
    tokio::pin!(request);
    assert!(timeout(Duration::from_secs(3), &mut request).await.is_err());
    let listener = TcpListener::bind(address).await.unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(OK).await.unwrap();
    };
    let (response, ()) = tokio::join!(request, server);
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn refused_connection_is_502_when_the_port_never_listens() {
    let (fixture, id) = fixture_with(&just_ready("127.0.0.1"));
    assert_eq!(answer(&fixture, &id).await.0, 502);
}

#[tokio::test(start_paused = true)]
async fn address_outside_pod_networks_is_502() {
    for ip in ["169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1"] {
        let (fixture, id) = fixture_with(&ready(ip));
        assert_eq!(answer(&fixture, &id).await.0, 502, "{ip}");
    }
}

/// Control port and sandbox server of one Pod.
struct ProvingPod {
    control: TcpListener,
    server: TcpListener,
    identity: IdentityKey,
}

impl ProvingPod {
    async fn new(ip: &str, identity: IdentityKey) -> Self {
        Self {
            control: TcpListener::bind((ip, CONTROL_PORT)).await.unwrap(),
            server: TcpListener::bind((ip, 0)).await.unwrap(),
            identity,
        }
    }

    /// Answers one identity request.
    async fn prove(&self) {
        let (mut stream, _) = self.control.accept().await.unwrap();
        let ip = stream.local_addr().unwrap().ip();
        let head = read_head(&mut stream).await;
        let nonce = head
            .lines()
            .find_map(|l| l.strip_prefix("x-sandbox-nonce: "));
        let proof = self.identity.prove(ip, nonce.unwrap(), b"");
        let head = format!("HTTP/1.1 200 OK\r\nx-sandbox-proof: {proof}\r\n");
        let text = format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn fixture_with_pod(pod: &ProvingPod) -> (GatewayFixture, String) {
    let address = pod.server.local_addr().unwrap();
    let fixture = GatewayFixture::new();
    let status = SandboxStatus {
        proves_address: true,
        ..ready(&address.ip().to_string())
    };
    let id = fixture.add(address.port(), &status);
    (fixture, id)
}

fn identity_of(fixture: &GatewayFixture, id: &str) -> IdentityKey {
    let uid = fixture.api.get(id).metadata.uid.unwrap();
    fixture.keys.of(None).identity_key(&uid)
}

#[tokio::test]
async fn requests_go_to_pods_that_prove_their_address() {
    let mut pod = ProvingPod::new("127.77.0.1", IdentityKey::new([0; 32])).await;
    let (fixture, id) = fixture_with_pod(&pod);
    pod.identity = identity_of(&fixture, &id);
    let server = async {
        let (mut stream, _) = pod.server.accept().await.unwrap();
        pod.prove().await;
        read_head(&mut stream).await;
        stream.write_all(OK).await.unwrap();
    };
    let (response, ()) = tokio::join!(fixture.send(alive(&id)), server);
    assert_eq!(response.status(), 200);
}

/// A Pod of another tenant has the address by now, while the index is behind.
#[tokio::test]
async fn another_pod_at_the_address_receives_nothing() {
    let pod = ProvingPod::new("127.77.0.2", IdentityKey::new([0; 32])).await;
    let (fixture, id) = fixture_with_pod(&pod);
    let stand_in = async {
        let mut received = Vec::new();
        loop {
            let (mut stream, _) = pod.server.accept().await.unwrap();
            pod.prove().await;
            stream.read_to_end(&mut received).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&received), "");
        }
    };
    tokio::select! {
        (code, ..) = answer(&fixture, &id) => assert_eq!(code, 502),
        () = stand_in => unreachable!(),
    }
}
