//! Proxied requests and responses: versions, trailers, expectations, links, ports and connection
//! reuse.

use std::time::Duration;

use bytes::Bytes;
use crds::sandbox::SandboxStatus;
use futures::future::poll_fn;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::timeout;

use crate::support::gateway_fixture::{config, ready, starting};
use crate::support::socket_fixture::{OK, SocketFixture, assert_lines};

/// Time without progress after which a window counts as used up.
const MOMENT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn http_2_request_reaches_sandbox_as_http_1() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let request = Request::get("/a//b?c=%20")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("x-api-key", "secret");
    let (answer, _) = fixture.http2_send(&mut client, request, true).await;
    let mut sandbox = fixture.sandbox().await;
    let expected = "get /a//b?c=%20 http/1.1\nhost: HOST\nx-forwarded-host: HOST\n\
                    cookie: a=1; b=2\nte: trailers\n\
                    !x-api-key\n!transfer-encoding\n!content-length";
    assert_lines("request", &sandbox.head().await, &fixture.fill_in(expected));
    sandbox
        .send("HTTP/1.1 201 Created\nContent-Length: 2\nKeep-Alive: timeout=1\nX-A: 1\n\nok")
        .await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["x-a"], "1");
    assert!(!answer.headers().contains_key("keep-alive"));
    assert_eq!(whole(answer.into_body()).await, "ok");
    // Settings that the gateway has announced.
    assert!(!client.is_extended_connect_protocol_enabled());
    assert_eq!(client.current_max_send_streams(), 100);
}

#[tokio::test]
async fn requests_share_an_http_2_connection() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let mut answers = Vec::new();
    for n in 0..50 {
        let request = Request::get(format!("/{n}"));
        answers.push(fixture.http2_send(&mut client, request, true).await.0);
    }
    let mut sandboxes = Vec::new();
    for _ in 0..50 {
        let mut sandbox = fixture.sandbox().await;
        let head = sandbox.head().await;
        let path = head.split(' ').nth(1).unwrap().to_owned();
        sandboxes.push((path, sandbox));
    }
    // Responses arrive in reverse order.
    for (path, sandbox) in sandboxes.iter_mut().rev() {
        let head = format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n{path}", path.len());
        sandbox.send(&head).await;
    }
    for (n, answer) in answers.into_iter().enumerate() {
        let body = answer.await.unwrap().into_body();
        assert_eq!(whole(body).await, format!("/{n}"));
    }
}

async fn whole(mut body: h2::RecvStream) -> String {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn request_trailers_pass_without_proxy_headers() {
    let fixture = SocketFixture::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\
                Trailer: X-Sum, X-API-Key, X-Forwarded-For\n\n\
                2\nhi\n0\nX-Sum: 7\nX-API-Key: secret\nX-Forwarded-For: 1.2.3.4\n\n";
    let (forwarded, _) = fixture.relay(text, OK).await;
    assert!(forwarded.contains("trailer: x-sum"), "{forwarded}");
    let body = "\n\n2\nhi\n0\nx-sum: 7\n\n";
    assert!(forwarded.ends_with(body), "{forwarded}");

    let mut client = fixture.http2().await;
    let request = Request::post("/").header("trailer", "x-sum");
    let (_answer, mut sent) = fixture.http2_send(&mut client, request, false).await;
    sent.send_data(Bytes::from_static(b"hi"), false).unwrap();
    let trailers = [("x-sum".parse().unwrap(), "7".parse().unwrap())];
    sent.send_trailers(trailers.into_iter().collect()).unwrap();
    assert!(fixture.sandbox().await.message().await.ends_with(body));
}

#[tokio::test]
async fn response_trailers_pass_to_clients_that_accept_them() {
    let fixture = SocketFixture::new().await;
    let answer =
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n2\nok\n0\nX-Sum: 7\n\n";
    for (te, end) in [("TE: trailers\n", "x-sum: 7\n\n"), ("", "\n")] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\n{te}\n");
        let (_, whole) = fixture.relay(&text, answer).await;
        assert!(whole.ends_with(&format!("2\nok\n0\n{end}")), "{whole}");
    }
    let (head, _, mut sandbox) = fixture.http2_get("/").await;
    sandbox.send(answer).await;
    let mut body = head.await.unwrap().into_body();
    while body.data().await.is_some() {}
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test]
async fn client_gets_100_continue_when_sandbox_reads_the_body() {
    let fixture = SocketFixture::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nExpect: 100-continue\nContent-Length: 4\n\n";
    let (mut client, mut sandbox, head) = fixture.open(text).await;
    assert!(!head.contains("expect"), "{head}");
    client.until("HTTP/1.1 100 Continue\n\n").await;
    client.send("body").await;
    sandbox.until("body").await;
    sandbox.send(OK).await;
    client.until("ok").await;

    // A rejection is not delayed by the expectation.
    fixture.base.change("/pause", &fixture.id).await;
    let mut client = fixture.client(text).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}

#[tokio::test]
async fn http_1_0_is_relayed() {
    let fixture = SocketFixture::new().await;
    let (forwarded, returned) = fixture
        .relay(
            "GET / HTTP/1.0\nHost: HOST\n\n",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n",
        )
        .await;
    assert!(forwarded.starts_with("get / http/1.1"), "{forwarded}");
    // The response ends with the connection.
    assert!(returned.ends_with("\n\nok"), "{returned}");
    assert!(!returned.contains("transfer-encoding"), "{returned}");
    // A request without a host gets the base host.
    let base = "host: rt.example.com\nx-forwarded-host: rt.example.com";
    let text = "GET /ID/runtime/x HTTP/1.0\n\n";
    fixture.assert_relayed(text, base, OK, "ok").await;
}

#[tokio::test]
async fn forwarded_for_of_trusted_proxies_is_kept() {
    for (trusted, expected) in [
        ("127.0.0.0/8", "192.0.2.1, 127.0.0.1"),
        ("10.0.0.0/8", "127.0.0.1"),
    ] {
        let mut config = config();
        config.trusted_proxies = vec![trusted.parse().unwrap()];
        let fixture = SocketFixture::with(config).await;
        let text = "GET / HTTP/1.1\nHost: HOST\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\n\n";
        let forwarded = format!("x-forwarded-for: {expected}");
        fixture.assert_relayed(text, &forwarded, OK, "ok").await;
    }
}

#[tokio::test]
async fn limits_connections_to_sandboxes() {
    let mut config = config();
    config.max_upstream_connections = 1;
    let fixture = SocketFixture::with(config).await;
    let text = "GET / HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let (mut first, mut sandbox, _) = fixture.open(text).await;
    let answer = fixture.assert_answered(text, "HTTP/1.1 503 ").await;
    assert!(answer.contains("overloaded"), "{answer}");
    sandbox.send(OK).await;
    assert!(first.rest().await.ends_with("ok"));
}

/// Sends until the window of the stream is used up, which the sandbox does not empty.
async fn fill_window(body: &mut h2::SendStream<Bytes>) {
    loop {
        body.reserve_capacity(1 << 20);
        let room = timeout(MOMENT, poll_fn(|cx| body.poll_capacity(cx))).await;
        let Ok(room) = room else {
            return;
        };
        let chunk = vec![b'x'; room.unwrap().unwrap()];
        body.send_data(chunk.into(), false).unwrap();
    }
}

#[tokio::test]
async fn stalled_http_2_uploads_do_not_block_others() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let upload = Request::post("/");
        let (answer, mut body) = fixture.http2_send(&mut client, upload, false).await;
        let mut sandbox = fixture.sandbox().await;
        sandbox.head().await;
        fill_window(&mut body).await;
        stalled.push((answer, body, sandbox));
    }
    let upload = Request::post("/");
    let (answer, mut body) = fixture.http2_send(&mut client, upload, false).await;
    let mut sandbox = fixture.sandbox().await;
    sandbox.head().await;
    body.send_data(Bytes::from_static(b"hi"), true).unwrap();
    sandbox.until("hi").await;
    sandbox.send(OK).await;
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn cors_preflight_is_forwarded() {
    let fixture = SocketFixture::new().await;
    let text = "OPTIONS /x HTTP/1.1\nHost: HOST\nOrigin: https://a\n\
                Access-Control-Request-Method: PUT\n\n";
    let answer = "HTTP/1.1 204 No Content\nAccess-Control-Allow-Origin: https://a\n\n";
    let (forwarded, returned) = fixture.relay(text, answer).await;
    assert_lines(text, &forwarded, "access-control-request-method: put");
    assert!(returned.starts_with("http/1.1 204"), "{returned}");
    let origins = returned.matches("access-control-allow-origin").count();
    assert_eq!(origins, 1, "{returned}");
}

#[tokio::test]
async fn upstream_connection_is_reused_until_pod_changes() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.client("GET /1 HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = fixture.sandbox().await;
    for n in 1..4 {
        assert!(sandbox.head().await.starts_with(&format!("get /{n} ")));
        sandbox.send(OK).await;
        client.until("ok").await;
        let next = format!("GET /{} HTTP/1.1\nHost: {}\n\n", n + 1, fixture.host());
        client.send(&next).await;
    }
    sandbox.head().await;
    sandbox.send(OK).await;
    client.until("ok").await;
    let open = &fixture.base.gateway.metrics().upstream_connections;
    assert_eq!(open.get(), 1);
    // The idle connection closes at once.
    fixture.base.report(&fixture.id, &ready("127.0.0.2"));
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn non_idempotent_request_is_not_retried() {
    let fixture = SocketFixture::new().await;
    for (head, body) in [
        ("POST /lost HTTP/1.1\nContent-Length: 0", ""),
        ("PATCH /lost HTTP/1.1\nContent-Length: 4", "body"),
        // Idempotent, but its body has been read.
        ("PUT /lost HTTP/1.1\nContent-Length: 4", "body"),
    ] {
        let text = format!("{head}\nHost: HOST\nConnection: close\n\n{body}");
        let mut client = fixture.client(&text).await;
        fixture.sandbox().await.message().await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{head}{answer}");
    }
    let text = "GET /next HTTP/1.1\nHost: HOST\n\n";
    fixture
        .assert_relayed(text, "get /next http/1.1", OK, "ok")
        .await;
}

/// A later readiness of the same Pod.
fn again(time: i64) -> SandboxStatus {
    SandboxStatus {
        ready_at: Some(Time(Timestamp::from_second(time).unwrap())),
        ..ready("127.0.0.1")
    }
}

/// The response after which a connection is not used again.
const DONE: &str = "HTTP/1.1 204 No Content\nConnection: close\n\n";

#[tokio::test]
async fn idempotent_request_is_retried_after_connection_loss() {
    let fixture = SocketFixture::new().await;
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        let text = format!("{method} /again HTTP/1.1\nHost: HOST\nConnection: close\n\n");
        let (mut client, sandbox, first) = fixture.open(&text).await;
        drop(sandbox);
        let mut sandbox = fixture.sandbox().await;
        assert_eq!(sandbox.head().await, first);
        sandbox.send(DONE).await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{method} {answer}");
    }
}

#[tokio::test]
async fn idempotent_request_waits_for_restarted_server() {
    let fixture = SocketFixture::new().await;
    let text = "GET /again HTTP/1.1\nHost: HOST\nUpgrade: x\nConnection: close, upgrade\n\n";
    let mut client = fixture.client(text).await;
    for _ in 0..2 {
        fixture.sandbox().await.head().await;
    }
    fixture.base.report(&fixture.id, &again(2));
    let mut sandbox = fixture.sandbox().await;
    assert_lines(text, &sandbox.head().await, "upgrade: x");
    sandbox.send(DONE).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 204 "));
    // A request that crashes its server every time is not sent again.
    let mut client = fixture.client(text).await;
    for turn in 0..3 {
        fixture.sandbox().await.head().await;
        if turn == 1 {
            fixture.base.report(&fixture.id, &again(3));
        }
    }
    assert!(client.rest().await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn idempotent_request_follows_replaced_pod() {
    let fixture = SocketFixture::new().await;
    let text = "GET /again HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let (mut client, mut sandbox, _) = fixture.open(text).await;
    fixture.base.report(&fixture.id, &starting(true));
    assert_eq!(sandbox.rest().await, "");
    fixture.base.report(&fixture.id, &again(2));
    let mut sandbox = fixture.sandbox().await;
    sandbox.head().await;
    sandbox.send(OK).await;
    assert!(client.rest().await.ends_with("ok"));
}

#[tokio::test]
async fn non_http_response_is_not_retried() {
    let fixture = SocketFixture::new().await;
    let text = "GET /odd HTTP/1.1\nHost: HOST\n\n";
    for odd in ["nonsense\n\n", "HTTP/1.1 200 OK\nContent-Length: x\n\n"] {
        let (_, answer) = fixture.relay(text, odd).await;
        assert!(answer.starts_with("http/1.1 502 "), "{answer}");
        assert!(answer.contains("is not HTTP"), "{answer}");
    }
}

/// The head has to fit into the read buffer of 64 KiB, whose last growth may double it. The default
/// of hyper is 400 KiB.
#[tokio::test]
async fn response_head_beyond_the_read_buffer_is_502() {
    let fixture = SocketFixture::new().await;
    let text = "GET /large HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    for (kib, status) in [(60, "HTTP/1.1 200 "), (140, "HTTP/1.1 502 ")] {
        let (mut client, mut sandbox, _) = fixture.open(text).await;
        let large = "x".repeat(kib << 10);
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nX: {large}\r\n");
        let response = format!("{head}Content-Length: 2\r\n\r\nok");
        // Fails if the gateway closes the connection before the end.
        sandbox.send_within_a_moment(response.as_bytes()).await;
        let answer = client.rest().await;
        assert!(answer.starts_with(status), "{kib} KiB: {answer:.40}");
    }
}

#[tokio::test]
async fn links_and_cookies_are_restricted_to_prefix_or_host() {
    let fixture = SocketFixture::new().await;
    let answer = "HTTP/1.1 302 Found\nLocation: /login?a=1\nSet-Cookie: a=1; Path=/\n\
                  Set-Cookie: b=2; Domain=rt.example.com\nService-Worker-Allowed: /\n\
                  Content-Length: 0\n\n";
    let switch = "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: websocket\n\
                  Set-Cookie: a=1; Path=/; Domain=example.com\n\n";
    let upgrade = "Connection: Upgrade\nUpgrade: websocket\n";
    for (target, host, offer, answer, returned) in [
        (
            "//ID/work-1/x",
            "rt.example.com",
            "",
            answer,
            "location: /ID/work-1/login?a=1\nset-cookie: a=1; path=/ID/work-1\n\
             set-cookie: b=2; path=/ID/work-1\n!service-worker-allowed",
        ),
        (
            "/x",
            "HOST",
            "",
            answer,
            "location: /login?a=1\nset-cookie: a=1; path=/\nset-cookie: b=2\n\
             service-worker-allowed: /",
        ),
        (
            "/ID/work-1/ws",
            "rt.example.com",
            upgrade,
            switch,
            "set-cookie: a=1; path=/ID/work-1",
        ),
        ("/ws", "HOST", upgrade, switch, "set-cookie: a=1; path=/"),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: {host}\n{offer}\n");
        fixture.assert_relayed(&text, "", answer, returned).await;
    }
}

#[tokio::test]
async fn vs_code_sees_its_prefix_when_configured() {
    for (keep_vscode_prefix, seen, location) in [
        (true, "/ID/vscode/x?tkn=1", "/y"),
        (false, "/x?tkn=1", "/ID/vscode/y"),
    ] {
        let mut config = config();
        config.keep_vscode_prefix = keep_vscode_prefix;
        let fixture = SocketFixture::with(config).await;
        fixture.declare("vscode");
        let get = |target| format!("GET {target} HTTP/1.1\nHost: rt.example.com\n\n");
        let answer = "HTTP/1.1 302 Found\nLocation: /y\nSet-Cookie: a=1; Path=/\n\
                      Service-Worker-Allowed: /\nContent-Length: 0\n\n";
        // The origin is shared in either mode.
        let returned = format!(
            "location: {location}\nset-cookie: a=1; path=/ID/vscode\n!service-worker-allowed"
        );
        let (text, seen) = (get("/ID/vscode/x?tkn=1"), format!("get {seen} http/1.1"));
        fixture
            .assert_relayed(&text, &seen, answer, &returned)
            .await;
        // Other ports never see their prefix.
        let text = get("/ID/work-1/x");
        fixture
            .assert_relayed(&text, "get /x http/1.1", OK, "ok")
            .await;
    }
}
