//! Malicious and broken clients: nothing that they send reaches a sandbox as something else, and
//! their share of resources is limited.

use std::net::IpAddr;

use bytes::Bytes;
use http::Request;

use crate::support::gateway_fixture::config;
use crate::support::socket_fixture::{OK, SocketFixture, assert_lines};

/// Heads whose end or target two parties could interpret differently.
const AMBIGUOUS_HEADS: [&str; 29] = [
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: 5\nContent-Length: 6\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: 5, 6\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: +5\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: -1\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: 0x5\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: 5 5\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length: 99999999999999999999\n\n",
    "POST / HTTP/1.1\nHost: HOST\nContent-Length:\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: xchunked\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked, identity\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: identity\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: gzip, chunked\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: gzip\nTransfer-Encoding: chunked\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding:\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding : chunked\n\n",
    "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: \u{b}chunked\n\n",
    "POST / HTTP/1.0\nHost: HOST\nTransfer-Encoding: chunked\n\n",
    "POST / HTTP/1.1\nHost: HOST\nX: a\n Transfer-Encoding: chunked\n\n",
    "GET / HTTP/1.1\nHost: HOST\nHost: other\n\n",
    "GET / HTTP/1.1\nHost : HOST\n\n",
    "GET / HTTP/1.1\n Host: HOST\n\n",
    "GET / HTTP/1.1\nHost: HOST/x\n\n",
    "GET / HTTP/1.1\nHost: HOST, other\n\n",
    "GET / HTTP/1.1\nHost: user@HOST\n\n",
    "GET / HTTP/1.1\nHost: HOST:port\n\n",
    "GET http://other/ HTTP/1.1\nHost: HOST\n\n",
    "GET / HTTP/1.1\nHost: HOST\nX\0: a\n\n",
    "GET / x HTTP/1.1\nHost: HOST\n\n",
    "GET / HTTP/9.9\nHost: HOST\n\n",
];

#[tokio::test]
async fn ambiguous_request_heads_are_rejected() {
    let fixture = SocketFixture::new().await;
    for head in AMBIGUOUS_HEADS {
        // After a clear end the rest would be a request of its own; here no end is clear.
        let hidden = if head.starts_with("POST") {
            "GET /smuggled HTTP/1.1\nHost: HOST\n\n"
        } else {
            ""
        };
        let mut client = fixture.client(&format!("{head}{hidden}")).await;
        client.finish().await;
        let answer = client.rest().await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{head}{answer}"
        );
    }
    // The first request that the sandbox receives is valid.
    let text = "GET /honest HTTP/1.1\nHost: HOST\n\n";
    fixture
        .assert_relayed(text, "get /honest http/1.1", OK, "ok")
        .await;
}

#[tokio::test]
async fn malformed_chunked_body_ends_the_request() {
    let fixture = SocketFixture::new().await;
    for body in ["zz\nhi\n", "-2\nhi\n", "2\nhiX", "fffffffffffffffff\nhi\n"] {
        let head = "POST /broken HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n";
        let mut client = fixture.client(&format!("{head}{body}")).await;
        let mut sandbox = fixture.sandbox().await;
        // No end of the body is added, so the server notices that it is incomplete.
        assert!(!sandbox.rest().await.contains("0\n\n"));
        client.rest().await;
    }
}

#[tokio::test]
async fn chunked_get_keeps_its_body_and_protected_headers() {
    let fixture = SocketFixture::new().await;
    // A GET, which may have a body too.
    let text = "GET / HTTP/1.1\nHost: HOST\nConnection: Host, Content-Length, X-Session-API-Key\n\
                X-Session-API-Key: key\nTransfer-Encoding: chunked\n\n\
                2;a=\"b\";c\nhi\n0;d\n\n";
    let (forwarded, _) = fixture.relay(text, OK).await;
    let expected = fixture.fill_in("host: HOST\ntransfer-encoding: chunked");
    assert_lines(text, &forwarded, &expected);
    assert!(forwarded.ends_with("\n\n2\nhi\n0\n\n"), "{forwarded}");
}

#[tokio::test]
async fn upgrade_to_http_2_is_removed() {
    let fixture = SocketFixture::new().await;
    for wish in ["h2c", "foo, H2C", "websocket,h2c", "foo\nUpgrade: h2c"] {
        let text = format!(
            "GET / HTTP/1.1\nHost: HOST\nConnection: Upgrade, HTTP2-Settings\nUpgrade: {wish}\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\n\n"
        );
        let forwarded = "!upgrade\n!http2-settings";
        fixture
            .assert_relayed(&text, forwarded, OK, "http/1.1 200 ok")
            .await;
    }
}

#[tokio::test]
async fn spoofed_proxy_headers_are_removed() {
    let fixture = SocketFixture::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nX-Real-IP: 6.6.6.6\nX_Real_IP: 6.6.6.6\n\
                X_Forwarded_For: 6.6.6.6\nX-Forwarded_For: 6.6.6.6\nX_API_KEY: 6.6.6.6\n\
                X_Mine: kept\nTransfer-Encoding: chunked\n\n\
                2\nhi\n0\nX_Forwarded_For: 6.6.6.6\n\n";
    let forwarded = "x-forwarded-for: 127.0.0.1\nx_mine: kept\nhi\n!6.6.6.6";
    fixture.assert_relayed(text, forwarded, OK, "ok").await;
}

#[tokio::test]
async fn connect_and_trace_are_405() {
    let fixture = SocketFixture::new().await;
    for head in [
        "CONNECT HOST:80 HTTP/1.1\nHost: HOST:80\n",
        "CONNECT 10.0.0.1:22 HTTP/1.1\nHost: 10.0.0.1:22\n",
        "TRACE / HTTP/1.1\nHost: HOST\n",
    ] {
        let text = format!("{head}Connection: close\n\n");
        fixture.assert_answered(&text, "HTTP/1.1 405 ").await;
    }
}

#[tokio::test]
async fn http_2_request_with_two_hosts_is_400() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let request = Request::get("/").header("host", "other");
    let (answer, _) = fixture.http2_send(&mut client, request, true).await;
    assert_eq!(answer.await.unwrap().status(), 400);
    // Connection headers are rejected.
    for (name, value) in [("connection", "x"), ("transfer-encoding", "chunked")] {
        client = client.ready().await.unwrap();
        let uri = format!("http://{}/", fixture.host());
        let request = Request::get(uri).header(name, value).body(()).unwrap();
        let refused = match client.send_request(request, true) {
            Err(_) => true,
            Ok((answer, _)) => answer.await.is_err(),
        };
        assert!(refused, "{name}");
    }
}

#[tokio::test]
async fn wrong_content_length_resets_http_2_stream() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let request = Request::post("/").header("content-length", "2");
    let (answer, mut body) = fixture.http2_send(&mut client, request, false).await;
    body.send_data(Bytes::from_static(b"GET /smuggled"), true)
        .unwrap();
    // Either the gateway rejects it, or the sandbox gets no more than the length.
    let mut sandbox = tokio::select! {
        answer = answer => {
            assert!(answer.is_err_and(|error| error.is_reset()));
            return;
        }
        sandbox = fixture.sandbox() => sandbox,
    };
    assert!(!sandbox.rest().await.contains("GET"));
}

#[tokio::test]
async fn oversized_heads_are_431() {
    let fixture = SocketFixture::new().await;
    let many = "X: 1\n".repeat(200);
    let large = "x".repeat(200 << 10);
    for (target, lines, status) in [
        ("", many.as_str(), "HTTP/1.1 431 "),
        ("", &format!("X: {large}\n"), "HTTP/1.1 431 "),
        (&large, "", "HTTP/1.1 4"),
    ] {
        let text = format!("GET /{target} HTTP/1.1\nHost: HOST\n{lines}\n");
        fixture.assert_answered(&text, status).await;
    }
    let mut client = fixture.http2().await;
    let request = Request::get("/").header("x", large);
    let (answer, _) = fixture.http2_send(&mut client, request, true).await;
    assert!(answer.await.is_ok_and(|answer| answer.status() == 431));
}

#[tokio::test]
async fn idle_connection_makes_room_and_active_ones_stay() {
    let mut config = config();
    config.max_connections = 2;
    let fixture = SocketFixture::with(config).await;
    let metrics = fixture.base.gateway.metrics();
    let (mut active, mut sandbox, _) = fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut idle = fixture.client(text).await;
    idle.until("}").await;
    let mut third = fixture.client(text).await;
    third.until("}").await;
    assert_eq!(idle.rest().await, "");
    assert_eq!(
        (metrics.connections.get(), metrics.evicted_connections.get()),
        (2, 1)
    );
    // Both slots are in use now, so the next connection waits for one of them.
    let slow = fixture.fill_in("GET /slow HTTP/1.1\nHost: HOST\n\n");
    third.send(&slow).await;
    let mut second = fixture.sandbox().await;
    second.head().await;
    let mut waiting = fixture.client(text).await;
    sandbox
        .send("HTTP/1.1 200 OK\nContent-Length: 2\nConnection: close\n\nok")
        .await;
    active.until("ok").await;
    drop(active);
    waiting.until("}").await;
    assert_eq!(metrics.evicted_connections.get(), 1);
}

#[tokio::test]
async fn limits_connections_per_address() {
    let mut config = config();
    config.max_connections_per_address = 2;
    let fixture = SocketFixture::with(config).await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let (mut first, mut second) = (fixture.client(text).await, fixture.client(text).await);
    first.until("}").await;
    second.until("}").await;
    let metrics = fixture.base.gateway.metrics().clone();
    assert_eq!(fixture.client("").await.rest().await, "");
    assert_eq!(metrics.refused_connections.get(), 1);
    // Other addresses are not affected.
    let other = IpAddr::from([127, 0, 0, 2]);
    fixture.client_from(other, text).await.until("}").await;
    // A closed connection no longer counts.
    first.finish().await;
    first.rest().await;
    while metrics.connections.get() > 1 {
        tokio::task::yield_now().await;
    }
    fixture.client(text).await.until("}").await;
    assert_eq!(metrics.refused_connections.get(), 1);
}

/// Bytes that a client sends after it was rejected.
const DISCARDED_BYTES: usize = 32 << 20;

#[tokio::test]
async fn client_reads_error_while_still_sending_body() {
    let fixture = SocketFixture::new().await;
    let chunk = vec![b'0'; 1 << 14];
    let framed = [b"4000\r\n", &*chunk, b"\r\n"].concat();
    let length = format!("Content-Length: {DISCARDED_BYTES}");
    for (target, host, status) in [
        ("/x", "vscode-HOST", "HTTP/1.1 404 "),
        ("/start", "gateway", "HTTP/1.1 401 "),
        ("/nothing", "gateway", "HTTP/1.1 404 "),
    ] {
        for (framing, chunk) in [(&*length, &chunk), ("Transfer-Encoding: chunked", &framed)] {
            let text = format!("POST {target} HTTP/1.1\nHost: {host}\n{framing}\n\n");
            let mut client = fixture.client(&text).await;
            for _ in 0..DISCARDED_BYTES >> 14 {
                client.send_raw(chunk).await;
            }
            let answer = client.rest().await;
            assert!(answer.starts_with(status), "{answer}");
            // The client must not reuse the connection.
            assert!(answer.contains("\nconnection: close\n"), "{answer}");
            assert!(answer.contains("\"detail\""), "{answer}");
        }
    }
}

#[tokio::test]
async fn limits_concurrent_requests_per_sandbox() {
    let mut config = config();
    config.max_requests_per_sandbox = 2;
    let fixture = SocketFixture::with(config).await;
    let slow = "GET /slow HTTP/1.1\nHost: HOST\n\n";
    let (mut client, mut sandbox, _) = fixture.open(slow).await;
    let _second = fixture.open(slow).await;
    let text = "GET /more HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let answer = fixture.assert_answered(text, "HTTP/1.1 503 ").await;
    assert!(answer.contains("too many concurrent requests"), "{answer}");
    sandbox.send(OK).await;
    client.until("ok").await;
    let mut client = fixture.client(text).await;
    sandbox.head().await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

/// A client that opens and cancels streams as fast as possible is disconnected, and others are served.
#[tokio::test]
async fn rapid_stream_resets_close_the_connection() {
    let fixture = SocketFixture::new().await;
    // Lookups get no response, so every request is in flight when it is reset.
    fixture.base.api.set_silent(true);
    let mut attacker = fixture.http2().await;
    let mut resets = 0;
    while let Ok(ready) = attacker.ready().await {
        attacker = ready;
        let request = Request::get("http://aaaaaaaaaaaaaaaa.rt.example.com/").body(());
        let Ok((_, mut sent)) = attacker.send_request(request.unwrap(), true) else {
            break;
        };
        tokio::task::yield_now().await;
        sent.send_reset(h2::Reason::CANCEL);
        resets += 1;
        assert!(resets < 20_000, "the connection is still open");
        tokio::task::yield_now().await;
    }
    let text = "GET /nothing HTTP/1.1\nHost: gateway\nConnection: close\n\n";
    fixture.assert_answered(text, "HTTP/1.1 404 ").await;
}
