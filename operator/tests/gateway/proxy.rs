//! The proxy over real sockets, byte by byte.

mod h2spec;
mod held_requests;
mod hostile_clients;
mod http;
mod sandbox_states;
mod stream;
mod transport;
mod ws;

use std::net::IpAddr;
use std::time::Duration;

use operator::urls::{UrlForm, loopback_address};
use tokio::time::Instant;

use crate::support::gateway_fixture::{config, ready, starting};
use crate::support::socket_fixture::{OK, SWITCH, SocketFixture, UPGRADE};

#[tokio::test]
async fn hop_by_hop_headers_are_removed() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, head) = fixture
        .open(
            "GET /a HTTP/1.1\nHost: HOST\nConnection: keep-alive, X-Hop\nX-Hop: 1\n\
             Keep-Alive: timeout=5\nTE: trailers\nProxy-Authorization: x\nX-API-Key: secret\n\
             X-Session-API-Key: session\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil\n\
             X-Forwarded-Prefix: /evil\nForwarded: for=evil\nX-Kept: yes\n\n",
        )
        .await;
    // The trace is new each time.
    let lines = head.trim_end().lines().skip(1);
    let mut lines: Vec<_> = lines.filter(|l| !l.starts_with("traceparent: ")).collect();
    lines.sort_unstable();
    let host = fixture.host();
    assert_eq!(
        lines,
        [
            "connection: te",
            &format!("host: {host}"),
            "te: trailers",
            "x-forwarded-for: 127.0.0.1",
            &format!("x-forwarded-host: {host}"),
            "x-forwarded-proto: https",
            "x-kept: yes",
            "x-session-api-key: session",
        ]
    );
    sandbox
        .send(
            "HTTP/1.1 200 OK\nContent-Length: 2\nConnection: X-Hop\nX-Hop: 1\n\
             Keep-Alive: timeout=5\nProxy-Authenticate: x\nSet-Cookie: a=1\nSet-Cookie: b=2\n\
             Access-Control-Allow-Origin: *\n\nok",
        )
        .await;
    let head = client.head().await;
    for gone in ["x-hop", "keep-alive", "proxy-authenticate", "connection"] {
        assert!(!head.contains(gone), "{head}");
    }
    for kept in [
        "set-cookie: a=1",
        "set-cookie: b=2",
        "access-control-allow-origin: *",
    ] {
        assert!(head.contains(kept), "{head}");
    }
    client.until("ok").await;
}

#[tokio::test]
async fn only_the_prefix_is_removed_from_paths() {
    let fixture = SocketFixture::new().await;
    let id = &fixture.id;
    for (slashes, port, tail, expected) in [
        ("/", "runtime", "", "/"),
        ("/", "runtime", "?a=1", "/?a=1"),
        ("/", "runtime", "/", "/"),
        ("/", "runtime", "/alive", "/alive"),
        // Any number of slashes is accepted.
        ("//", "runtime", "/alive", "/alive"),
        (
            "/",
            "work-1",
            "//a/../b/./%2F%20?q=%20&&x",
            "//a/../b/./%2f%20?q=%20&&x",
        ),
    ] {
        let target = format!("{slashes}{id}/{port}{tail}");
        let text = format!("GET {target} HTTP/1.1\nHost: gateway\nConnection: close\n\n");
        let (head, answer) = fixture.round_trip(&text, OK).await;
        assert!(
            head.starts_with(&format!("get {expected} http/1.1\n")),
            "{head}"
        );
        let prefix = format!("x-forwarded-prefix: /{id}/{port}\n");
        assert!(head.contains(&prefix), "{head}");
        assert!(answer.contains("ok"));
    }
}

#[tokio::test]
async fn every_url_form_reaches_the_sandbox() {
    let fixture = SocketFixture::new().await;
    fixture.declare("my-app");
    let id = &fixture.id;
    let base = "rt.example.com".to_owned();
    for (host, target, seen) in [
        (format!("{id}.rt.example.com"), "/x".to_owned(), "/x"),
        (format!("{id}-RT.example.com:8443"), "/x".into(), "/x"),
        (format!("work-1-{id}.rt.example.com."), "/x".into(), "/x"),
        (format!("my-app-{id}.rt.example.com"), "/x".into(), "/x"),
        (format!("my-app-{id}-rt.example.com"), "/x".into(), "/x"),
        (base.clone(), format!("/{id}/my-app/x"), "/x"),
        (base, format!("/{id}/my-app"), "/"),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let (head, answer) = fixture.round_trip(&text, OK).await;
        assert!(head.starts_with(&format!("get {seen} http/1.1")), "{host}");
        assert!(answer.ends_with("ok"), "{host}");
    }
}

#[tokio::test]
async fn loopback_host_needs_loopback_form_and_a_connection_to_it() {
    for (form, same_address, is_routed) in [
        (UrlForm::Loopback, true, true),
        (UrlForm::Loopback, false, false),
        (UrlForm::Nested, true, false),
        (UrlForm::Path, true, false),
    ] {
        let mut config = config();
        config.urls.form = form;
        let fixture = SocketFixture::with(config).await;
        let loopback = IpAddr::from(loopback_address(&fixture.id));
        let ip = if same_address {
            loopback
        } else {
            fixture.address.ip()
        };
        let host = format!("{loopback}:{}", fixture.address.port());
        let text = format!("GET /x HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let mut client = fixture.client_at(ip, &text).await;
        if is_routed {
            let mut sandbox = fixture.sandbox().await;
            assert!(sandbox.head().await.starts_with("get /x http/1.1"));
            sandbox.send(OK).await;
            assert!(client.rest().await.ends_with("ok"));
        } else {
            assert!(client.rest().await.starts_with("HTTP/1.1 404 "), "{form}");
        }
    }
}

#[tokio::test]
async fn unknown_targets_are_404() {
    let fixture = SocketFixture::new().await;
    for head in [
        "GET / HTTP/1.1\nHost: vscode-HOST\n",
        "GET / HTTP/1.1\nHost: aaaaaaaaaaaaaaaa.rt.example.com\n",
        "GET /aaaaaaaaaaaaaaaa/runtime/ HTTP/1.1\nHost: x\n",
    ] {
        let request = format!("{head}Connection: close\n\n");
        let answer = fixture.exchange(&request).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{head}{answer}");
    }
}

#[tokio::test]
async fn transfer_encoding_overrides_content_length() {
    let fixture = SocketFixture::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nContent-Length: 3\nTransfer-Encoding: chunked\n\n\
                2\nhi\n0\n\nGET /smuggled HTTP/1.1\nHost: HOST\n\n";
    let mut client = fixture.client(text).await;
    let mut sandbox = fixture.sandbox().await;
    assert!(!sandbox.head().await.contains("content-length"));
    sandbox.until("2\nhi\n0\n\n").await;
    sandbox.send(OK).await;
    // The connection closes, so the rest is not a request.
    assert!(client.rest().await.ends_with("ok"));
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, _) = fixture.open("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
    sandbox
        .send("HTTP/1.1 200 OK\nContent-Type: text/event-stream\nTransfer-Encoding: chunked\n\n")
        .await;
    client.head().await;
    for event in ["data: 1", "data: 2", "data: 3"] {
        sandbox.send(&format!("7\n{event}\n")).await;
        // The next event is sent only after this one has arrived.
        client.until(event).await;
    }
    sandbox.send("0\n\n").await;
    client.until("0\n\n").await;
}

#[tokio::test]
async fn upgrade_opens_a_tunnel() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, head) = fixture.open(UPGRADE).await;
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key: k",
    ] {
        assert!(head.contains(line), "{head}");
    }
    // Bytes right after the head belong to the tunnel.
    sandbox.send(&format!("{SWITCH}early")).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-protocol: p",
    ] {
        assert!(head.contains(line), "{head}");
    }
    client.until("early").await;
    for n in 0..100 {
        client.send(&format!("<ping {n}>")).await;
        sandbox.until(&format!("<ping {n}>")).await;
        sandbox.send(&format!("<pong {n}>")).await;
        client.until(&format!("<pong {n}>")).await;
    }
    // One direction may end before the other.
    client.finish().await;
    assert_eq!(sandbox.rest().await, "");
    sandbox.send("bye").await;
    drop(sandbox);
    assert_eq!(client.rest().await, "bye");
}

#[tokio::test]
async fn rejected_upgrade_is_passed_on() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, _) = fixture.open(UPGRADE).await;
    sandbox
        .send("HTTP/1.1 403 Forbidden\nContent-Length: 2\n\nno")
        .await;
    assert!(client.head().await.starts_with("http/1.1 403"));
    client.until("no").await;
}

#[tokio::test]
async fn switch_to_a_protocol_that_was_not_offered_is_502() {
    let fixture = SocketFixture::new().await;
    let to_http_2 = SWITCH.replace("websocket", "foo, h2c");
    let offer = "Connection: Upgrade\nUpgrade: foo\n";
    for (offer, switch) in [("", SWITCH), (offer, &to_http_2)] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\n{offer}\n");
        let (mut client, mut sandbox, _) = fixture.open(&text).await;
        sandbox.send(switch).await;
        let head = client.head().await;
        assert!(head.starts_with("http/1.1 502 "), "{offer}{head}");
    }
}

#[tokio::test]
async fn upstream_connection_closes_when_client_leaves() {
    let fixture = SocketFixture::new().await;
    // Before the answer begins.
    let (client, mut sandbox, _) = fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    // During the response.
    let (mut client, mut sandbox, _) = fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    sandbox
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    client.until("hi").await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    // In a tunnel.
    let (client, mut sandbox) = fixture.tunnel().await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn truncated_response_is_not_completed() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    sandbox
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    client.until("hi").await;
    drop(sandbox);
    assert!(!client.rest().await.contains('0'));
    // Before it begins.
    let (mut client, sandbox, _) = fixture
        .open("POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n")
        .await;
    drop(sandbox);
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.ends_with(r#"{"detail":"connection to the sandbox was lost"}"#),
        "{answer}"
    );
}

#[tokio::test]
async fn open_connections_close_when_pod_is_gone() {
    let fixture = SocketFixture::new().await;
    let (mut pending, _held, _) = fixture
        .open("POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n")
        .await;
    let (mut reading, mut writing, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    writing
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    reading.until("hi").await;
    let (mut tunnel, mut far) = fixture.tunnel().await;

    fixture.base.report(&fixture.id, &starting(true));
    let answer = pending.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(!reading.rest().await.contains('0'));
    assert_eq!(tunnel.rest().await, "");
    assert_eq!(far.rest().await, "");
}

#[tokio::test]
async fn request_is_held_until_sandbox_is_ready() {
    let fixture = SocketFixture::new().await;
    fixture.base.report(&fixture.id, &starting(true));
    let text = "POST /execute_action HTTP/1.1\nHost: HOST\nContent-Length: 4\n\nbody";
    let mut client = fixture.client(text).await;
    fixture.base.report(&fixture.id, &ready("127.0.0.1"));
    let mut sandbox = fixture.sandbox().await;
    sandbox.until("\n\nbody").await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn request_follows_moved_sandbox() {
    let fixture = SocketFixture::new().await;
    // Nothing listens there: the Pod is gone and the index is stale.
    fixture.base.report(&fixture.id, &ready("127.0.0.99"));
    let text = "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n";
    let mut client = fixture.client(text).await;
    fixture.base.report(&fixture.id, &starting(true));
    fixture.base.report(&fixture.id, &ready("127.0.0.1"));
    let mut sandbox = fixture.sandbox().await;
    sandbox.until("4\nbody\n0\n\n").await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_tunnels() {
    let fixture = SocketFixture::new().await;
    let (mut tunnel, _far) = fixture.tunnel().await;
    let (mut idle, mut sandbox, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    sandbox.send(OK).await;
    idle.until("ok").await;
    fixture.shutdown.cancel();
    fixture.served.await.unwrap();
    assert_eq!(idle.rest().await, "");
    assert_eq!(tunnel.rest().await, "");
}

#[tokio::test(start_paused = true)]
async fn slow_head_is_cut_off_and_idle_connection_stays() {
    let fixture = SocketFixture::new().await;
    let start = Instant::now();
    let mut slow = fixture.client("GET / HTTP/1.1\nHost:").await;
    slow.rest().await;
    assert!((10..11).contains(&start.elapsed().as_secs()));

    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut idle = fixture.client(text).await;
    idle.until("}").await;
    let start = Instant::now();
    idle.rest().await;
    assert!((75..120).contains(&start.elapsed().as_secs()));

    let mut kept = fixture.client(text).await;
    for _ in 0..5 {
        kept.until("}").await;
        tokio::time::advance(Duration::from_secs(70)).await;
        kept.send(text).await;
    }
    kept.until("}").await;
}
