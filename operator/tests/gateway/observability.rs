//! Metrics, access log and traffic reports of a gateway.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use operator::admin_server;
use operator::clock::Clock;
use operator::diagnostics::Diagnostics;
use operator::gateway::ApiSettings;
use operator::keys::Keys;
use operator::traffic::{Gateways as _, HttpGateways, TrafficEndpoint};
use ring::digest::SHA256;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::gateway_fixture::{GatewayFixture, KEY, config, key};
use crate::support::socket_fixture::{OK, SocketFixture};
use testing::{CapturedLog, FakeApi};

#[tokio::test]
async fn every_outcome_is_counted_once() {
    let fixture = SocketFixture::new().await;
    let metrics = fixture.base.gateway.metrics().clone();
    let (mut client, mut sandbox, _) = fixture.open("GET /a HTTP/1.1\nHost: HOST\n\n").await;
    sandbox.send(OK).await;
    client.until("ok").await;
    for (request, host, target, outcome) in [
        ("GET /nothing", "gateway", "api", "client-error"),
        ("GET /", "vscode-HOST", "sandbox", "unknown-port"),
        ("GET /", "a@b", "none", "bad-request"),
        ("TRACE /", "HOST", "none", "client-error"),
    ] {
        let text = format!("{request} HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        fixture.exchange(&text).await;
        assert_eq!(metrics.requests(target, outcome), 1, "{text}");
    }
    // The client leaves before the response head, and after it.
    let client = fixture.client("GET /b HTTP/1.1\nHost: HOST\n\n").await;
    sandbox.head().await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    let (mut client, mut sandbox, _) = fixture.open("GET /c HTTP/1.1\nHost: HOST\n\n").await;
    sandbox
        .send("HTTP/1.1 200 OK\nContent-Length: 9\n\nok")
        .await;
    client.until("ok").await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    assert_eq!(metrics.requests("sandbox", "client-left"), 2);
    assert_eq!(metrics.requests("sandbox", "ok"), 1);

    // The same over HTTP; no line names a sandbox.
    let text = "GET /metrics HTTP/1.1\nHost: gateway\nConnection: close\n\n";
    let answer = fixture.exchange(text).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let line = r#"gateway_requests_total{target="sandbox",outcome="client-left"} 2"#;
    assert!(answer.contains(line), "{answer}");
    assert!(!answer.contains(&fixture.id), "{answer}");
    let forwarded = text.replace("Host", "X-Forwarded-For: 192.0.2.1\nHost");
    fixture.assert_answered(&forwarded, "HTTP/1.1 404 ").await;
    let answer = fixture.exchange(&text.replace("GET", "HEAD")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.contains("gateway_requests_total"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn audit_line_names_key_address_and_outcome() {
    let log = CapturedLog::start();
    let settings = ApiSettings {
        admin_password: Some("secret-password".to_owned().into()),
        ..ApiSettings::default()
    };
    let fixture = GatewayFixture::of(&FakeApi::default(), settings);
    let body = json!({"image": "debian", "session_id": "s1"});
    let (_, info) = fixture.post("/start", &body).await;
    let unknown = json!({"runtime_id": "abcdefghijklmnop"});
    fixture.post("/stop", &unknown).await;
    let login = json!({"challenge": "wrong", "hash": ""});
    fixture.post("/api/admin/login", &login).await;

    let key = data_encoding::HEXLOWER
        .encode(&ring::digest::digest(&SHA256, KEY.as_bytes()).as_ref()[..4]);
    let start = json!(["192.0.2.1", "start", info["runtime_id"], "done", key]);
    let unknown = "abcdefghijklmnop";
    let stop = json!(["192.0.2.1", "stop", unknown, "unknown-runtime", key]);
    let login = json!(["192.0.2.1", "login", null, "admin-challenge", null]);
    let fields = &["address", "action", "runtime", "outcome", "key"];
    assert_eq!(log.of("audit", fields), [start, stop, login]);
}

#[tokio::test(start_paused = true)]
async fn change_of_a_client_that_leaves_is_audited() {
    let log = CapturedLog::start();
    let fixture = GatewayFixture::new();
    let body = json!({"image": "debian", "session_id": "s1"});
    {
        let call = pin!(fixture.post("/start", &body));
        assert!(futures::poll!(call).is_pending());
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let audit = log.of("audit", &["action", "outcome"]);
    assert_eq!(audit, [json!(["start", "done"])]);
}

#[tokio::test]
async fn access_log_contains_no_secret() {
    let log = CapturedLog::start();
    let fixture = SocketFixture::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let secrets = format!(
        "X-API-Key: secret-a\nX-Session-API-Key: secret-b\nAuthorization: Bearer secret-c\n\
         Cookie: secret-d\nTraceparent: 00-{trace}-00f067aa0ba902b7-01\n"
    );
    let text = format!(
        "POST /login?tkn=secret-e HTTP/1.1\nHost: HOST\n{secrets}Content-Length: 8\n\nsecret-f"
    );
    let mut client = fixture.client(&text).await;
    let mut sandbox = fixture.sandbox().await;
    let forwarded = sandbox.until("secret-f").await;
    let parent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\n");
    assert!(forwarded.contains(&parent), "{forwarded}");
    sandbox
        .send("HTTP/1.1 200 OK\nSet-Cookie: secret-g\nContent-Length: 8\n\nsecret-h")
        .await;
    client.until("secret-h").await;
    let text = format!(
        "GET /sessions/s1?x=secret-i HTTP/1.1\nHost: gateway\n{secrets}Connection: close\n\n"
    );
    fixture.exchange(&text).await;

    let fields = &["level", "to", "path", "status", "trace_id", "peer"];
    let sandbox = json!(["DEBUG", "sandbox", "/login", 200, trace, "127.0.0.1"]);
    let api = json!(["INFO", "api", "/sessions/s1", 401, trace, "127.0.0.1"]);
    assert_eq!(log.of("access", fields), [sandbox, api]);
    let of_sandbox = log.of("access", &["id", "port", "bytes", "outcome"]);
    assert_eq!(of_sandbox[0], json!([fixture.id, "runtime", 8, "ok"]));
    let text = log.text();
    assert!(!text.contains("secret"), "{text}");
}

/// Starts the admin server of a gateway.
async fn port(fixture: &GatewayFixture) -> (SocketAddr, CancellationToken) {
    let diagnostics = Arc::new(Diagnostics::default());
    let gateway = fixture.gateway.clone();
    let endpoint = TrafficEndpoint::new(&fixture.keys, Clock::wall(), move |key| {
        gateway.traffic_of(key)
    })
    .unwrap();
    diagnostics.traffic.set(endpoint).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    tokio::spawn(admin_server::serve(listener, diagnostics, shutdown.clone()));
    (address, shutdown)
}

#[tokio::test]
async fn sandbox_is_not_idle_while_a_request_is_open() {
    let fixture = SocketFixture::new().await;
    let idle_since = async || {
        let idle = fixture.base.found("/list/idle").await;
        idle["idle_since"][&fixture.id].clone()
    };
    let begin = idle_since().await;
    assert!(begin.is_string(), "{begin}");
    let (mut client, mut sandbox, _) = fixture.open("GET /a HTTP/1.1\nHost: HOST\n\n").await;
    assert_eq!(idle_since().await, Value::Null);
    sandbox.send(OK).await;
    client.until("ok").await;
    while idle_since().await.is_null() {}
}

#[tokio::test]
async fn controller_reads_traffic_of_all_gateways() {
    let fixture = SocketFixture::new().await;
    let other = GatewayFixture::beside(&fixture.base.api, config());
    let ((first, _open), (second, closing)) = (port(&fixture.base).await, port(&other).await);
    let keys = fixture.base.keys.clone();
    let query = async |keys: &Arc<Keys>, places: &[SocketAddr]| {
        let places = places.iter().map(ToString::to_string).collect();
        let gateways = HttpGateways::new(places, keys.clone(), Clock::wall());
        gateways.traffic(&key(&fixture.id)).await
    };
    let both = [second, first];
    let seen = async |places: &[SocketAddr]| query(&keys, places).await.unwrap().unwrap();
    assert!(!seen(&both).await.has_seen_request);

    // A request is visible while it is open, and afterwards.
    let (mut client, mut sandbox, _) = fixture.open("GET /a HTTP/1.1\nHost: HOST\n\n").await;
    let open = seen(&both).await;
    assert_eq!((open.idle, open.has_seen_request), (Duration::ZERO, true));
    sandbox.send(OK).await;
    client.until("ok").await;
    assert!(seen(&both).await.has_seen_request);
    assert!(!seen(&[second]).await.has_seen_request);

    // Another installation is rejected, and one silent gateway fails the query.
    let foreign = Arc::new(Keys::derive(&[8; 32]).unwrap());
    let refused = query(&foreign, &both).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    closing.cancel();
    while query(&keys, &[second]).await.is_ok() {}
    let silent = query(&keys, &both).await.unwrap_err();
    assert!(silent.to_string().contains(&second.to_string()), "{silent}");
    let gateways = HttpGateways::new(vec!["nowhere.invalid:1".into()], keys, Clock::wall());
    assert!(gateways.traffic(&key("b")).await.is_err());
}
