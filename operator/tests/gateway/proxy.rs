//! The proxy over real sockets, byte by byte.

mod h2spec;
mod hostile_clients;
mod http;
mod sandbox_states;
mod stream;
pub(crate) mod transport;
mod ws;

use std::net::IpAddr;

use operator::urls::{UrlForm, loopback_address};

use crate::support::gateway_fixture::{config, ready, starting};
use crate::support::socket_fixture::{
    OK, RawConnection, SWITCH, SocketFixture, UPGRADE, assert_lines,
};

#[tokio::test]
async fn hop_by_hop_headers_are_removed() {
    let fixture = SocketFixture::new().await;
    let (forwarded, returned) = fixture
        .relay(
            "GET /a HTTP/1.1\nHost: HOST\nConnection: keep-alive, X-Hop\nX-Hop: 1\n\
             Keep-Alive: timeout=5\nTE: trailers\nProxy-Authorization: x\nX-API-Key: secret\n\
             X-Session-API-Key: session\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil\n\
             X-Forwarded-Prefix: /evil\nForwarded: for=evil\nX-Kept: yes\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 2\nConnection: X-Hop\nX-Hop: 1\n\
             Keep-Alive: timeout=5\nProxy-Authenticate: x\nSet-Cookie: a=1\nSet-Cookie: b=2\n\
             Access-Control-Allow-Origin: *\n\nok",
        )
        .await;
    let lines = forwarded.trim_end().lines().skip(1);
    let (new_trace, mut lines): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.starts_with("traceparent: 00-"));
    assert_eq!(new_trace.len(), 1);
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
    let expected = "set-cookie: a=1\nset-cookie: b=2\naccess-control-allow-origin: *\nok\n\
                    !x-hop\n!keep-alive\n!proxy-authenticate\n!connection";
    assert_lines("response", &returned, expected);
}

#[tokio::test]
async fn only_the_prefix_is_removed_from_paths() {
    let fixture = SocketFixture::new().await;
    for (target, port, seen) in [
        ("/ID/runtime", "runtime", "/"),
        ("/ID/runtime?a=1", "runtime", "/?a=1"),
        ("/ID/runtime/", "runtime", "/"),
        ("/ID/runtime/alive", "runtime", "/alive"),
        // Any number of slashes is accepted.
        ("//ID/runtime/alive", "runtime", "/alive"),
        (
            "/ID/work-1//a/../b/./%2F%20?q=%20&&x",
            "work-1",
            "//a/../b/./%2f%20?q=%20&&x",
        ),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: gateway\n\n");
        let forwarded = format!("get {seen} http/1.1\nx-forwarded-prefix: /ID/{port}");
        fixture.assert_relayed(&text, &forwarded, OK, "ok").await;
    }
}

/// All forms work, whichever one the API returns.
#[tokio::test]
async fn every_url_form_reaches_the_sandbox() {
    for (form, url) in [
        (UrlForm::Nested, "https://HOST"),
        (UrlForm::Flat, "https://ID-rt.example.com"),
        (UrlForm::Path, "https://rt.example.com/ID/runtime"),
    ] {
        let mut config = config();
        config.urls.form = form;
        let fixture = SocketFixture::with(config).await;
        fixture.declare("my-app");
        let (code, info) = fixture.base.get("/sessions/s1").await;
        assert_eq!(
            (code, info["url"].as_str()),
            (200, Some(&*fixture.fill_in(url)))
        );
        for (host, target, seen) in [
            ("HOST", "/x", "/x"),
            ("ID-rt.example.com", "/x", "/x"),
            ("ID-RT.example.com:8443", "/x", "/x"),
            ("work-1-ID.rt.example.com.", "/x", "/x"),
            ("my-app-ID.rt.example.com", "/x", "/x"),
            ("my-app-ID-rt.example.com", "/x", "/x"),
            ("rt.example.com", "/ID/runtime/x", "/x"),
            ("rt.example.com", "/ID/my-app/x", "/x"),
            ("rt.example.com", "/ID/my-app", "/"),
        ] {
            let text = format!("GET {target} HTTP/1.1\nHost: {host}\n\n");
            let forwarded = format!("get {seen} http/1.1");
            fixture.assert_relayed(&text, &forwarded, OK, "ok").await;
        }
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
        "GET / HTTP/1.1\nHost: nothing-HOST\n",
        "GET / HTTP/1.1\nHost: x.HOST\n",
        "GET / HTTP/1.1\nHost: aaaaaaaaaaaaaaaa.rt.example.com\n",
        "GET / HTTP/1.1\nHost: AAAAAAAAAAAAAAAA.rt.example.com\n",
        "GET /aaaaaaaaaaaaaaaa/runtime/ HTTP/1.1\nHost: x\n",
        "GET //aaaaaaaaaaaaaaaa//runtime HTTP/1.1\nHost: x\n",
        "GET /ID/nothing/alive HTTP/1.1\nHost: x\n",
        "GET /ID HTTP/1.1\nHost: x\n",
        "GET /ID/ HTTP/1.1\nHost: x\n",
        "GET /ID?q HTTP/1.1\nHost: x\n",
    ] {
        let text = format!("{head}Connection: close\n\n");
        fixture.assert_answered(&text, "HTTP/1.1 404 ").await;
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
    let upgrade = "connection: upgrade\nupgrade: websocket";
    assert_lines(UPGRADE, &head, &format!("{upgrade}\nsec-websocket-key: k"));
    // Bytes right after the head belong to the tunnel.
    sandbox.send(&format!("{SWITCH}early")).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert_lines(
        SWITCH,
        &head,
        &format!("{upgrade}\nsec-websocket-protocol: p"),
    );
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
async fn unexpected_responses_to_upgrades_are_handled() {
    let fixture = SocketFixture::new().await;
    let get = |offer: &str| format!("GET / HTTP/1.1\nHost: HOST\n{offer}\n");
    let to_http_2 = SWITCH.replace("websocket", "foo, h2c");
    let rejection = "HTTP/1.1 403 Forbidden\nContent-Length: 2\n\nno";
    for (request, response, returned) in [
        (UPGRADE, rejection, "http/1.1 403 forbidden\nno"),
        // A switch to a protocol that was not offered.
        (&get(""), SWITCH, "http/1.1 502 bad gateway"),
        (
            &get("Connection: Upgrade\nUpgrade: foo\n"),
            &to_http_2,
            "http/1.1 502 bad gateway",
        ),
    ] {
        fixture
            .assert_relayed(request, "", response, returned)
            .await;
    }
}

/// Response of which only the beginning is sent.
const UNFINISHED: &str = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n";

/// Opens a request whose response has begun.
async fn open_response(fixture: &SocketFixture) -> (RawConnection, RawConnection) {
    let (mut client, mut sandbox, _) = fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    sandbox.send(UNFINISHED).await;
    client.until("hi").await;
    (client, sandbox)
}

#[tokio::test]
async fn upstream_connection_closes_when_client_leaves() {
    let fixture = SocketFixture::new().await;
    let (pending, waiting, _) = fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let before_the_response = (pending, waiting);
    let during_the_response = open_response(&fixture).await;
    let in_a_tunnel = fixture.tunnel().await;
    for (client, mut sandbox) in [before_the_response, during_the_response, in_a_tunnel] {
        drop(client);
        assert_eq!(sandbox.rest().await, "");
    }
    // A half-closed client counts as gone.
    let (mut client, mut sandbox, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    client.finish().await;
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn truncated_response_is_not_completed() {
    let fixture = SocketFixture::new().await;
    let (mut client, sandbox) = open_response(&fixture).await;
    drop(sandbox);
    assert!(!client.rest().await.contains('0'));
    // Before it begins.
    let text = "POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let (mut client, sandbox, _) = fixture.open(text).await;
    drop(sandbox);
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let detail = r#"{"detail":"connection to the sandbox was lost"}"#;
    assert!(answer.ends_with(detail), "{answer}");
}

#[tokio::test]
async fn open_connections_close_when_pod_is_gone() {
    let fixture = SocketFixture::new().await;
    let (mut pending, _held, _) = fixture
        .open("POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n")
        .await;
    let (mut reading, _writing) = open_response(&fixture).await;
    let (mut tunnel, mut far) = fixture.tunnel().await;

    fixture.base.report(&fixture.id, &starting(true));
    let answer = pending.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(!reading.rest().await.contains('0'));
    assert_eq!(tunnel.rest().await, "");
    assert_eq!(far.rest().await, "");
}

#[tokio::test]
async fn open_request_is_told_of_a_pause() {
    let fixture = SocketFixture::new().await;
    let action =
        "POST /execute_action HTTP/1.1\nHost: HOST\nConnection: close\nContent-Length: 0\n\n";
    let (mut pending, _sandbox, _) = fixture.open(action).await;
    fixture.base.change("/pause", &fixture.id).await;
    fixture.base.report(&fixture.id, &starting(true));
    let answer = pending.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.contains("the sandbox was paused during the request"),
        "{answer}"
    );
}

#[tokio::test]
async fn request_follows_its_sandbox() {
    let fixture = SocketFixture::new().await;
    // It is held until the sandbox is ready. At 127.0.0.99 nothing listens: the Pod is gone and
    // the index is stale.
    for (before, body) in [
        (starting(true), "Content-Length: 4\n\nbody"),
        (
            ready("127.0.0.99"),
            "Transfer-Encoding: chunked\n\n4\nbody\n0\n\n",
        ),
    ] {
        fixture.base.report(&fixture.id, &before);
        let text = format!("POST / HTTP/1.1\nHost: HOST\n{body}");
        let mut client = fixture.client(&text).await;
        fixture.base.report(&fixture.id, &starting(true));
        fixture.base.report(&fixture.id, &ready("127.0.0.1"));
        let mut sandbox = fixture.sandbox().await;
        let (_, body) = body.split_once("\n\n").unwrap();
        assert!(sandbox.message().await.ends_with(body));
        sandbox.send(OK).await;
        client.until("ok").await;
    }
}

#[tokio::test]
async fn shutdown_closes_idle_connections_tunnels_and_endless_streams() {
    let fixture = SocketFixture::new().await;
    let (mut reading, _writing) = open_response(&fixture).await;
    let (mut tunnel, _far) = fixture.tunnel().await;
    let (mut idle, mut sandbox, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    sandbox.send(OK).await;
    idle.until("ok").await;
    fixture.shutdown.cancel();
    fixture.served.await.unwrap();
    assert!(
        !reading.rest().await.contains('0'),
        "an end like that of the stream"
    );
    assert_eq!(idle.rest().await, "");
    assert_eq!(tunnel.rest().await, "");
}
