//! Proxied requests and responses: versions, trailers, expectations, links, ports and connection
//! reuse.

use std::time::Duration;

use bytes::Bytes;
use crds::sandbox::SandboxStatus;
use futures::future::poll_fn;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator::urls::UrlForm;
use serde_json::json;
use tokio::time::timeout;

use crate::support::gateway_fixture::{config, ready, starting};
use crate::support::socket_fixture::{OK, SocketFixture};

/// Time without progress after which a window counts as used up.
const MOMENT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn http_2_request_reaches_sandbox_as_http_1() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let request = Request::get(format!("http://{}/a//b?c=%20", fixture.host()))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("x-api-key", "secret")
        .body(())
        .unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut sandbox = fixture.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.starts_with("get /a//b?c=%20 http/1.1\n"), "{head}");
    for line in [
        format!("\nhost: {}\n", fixture.host()),
        format!("\nx-forwarded-host: {}\n", fixture.host()),
        "\ncookie: a=1; b=2\n".into(),
        "\nte: trailers\n".into(),
    ] {
        assert!(head.contains(&line), "{line}{head}");
    }
    for word in ["x-api-key", "transfer-encoding", "content-length"] {
        assert!(!head.contains(word), "{head}");
    }
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
        let uri = format!("http://{}/{n}", fixture.host());
        let request = Request::get(uri).body(()).unwrap();
        client = client.ready().await.unwrap();
        answers.push(client.send_request(request, true).unwrap().0);
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
    let mut client = fixture.client(text).await;
    let mut sandbox = fixture.sandbox().await;
    assert!(sandbox.head().await.contains("trailer: x-sum"));
    assert_eq!(sandbox.until("\n\n").await, "2\nhi\n0\nx-sum: 7\n\n");
    sandbox.send(OK).await;
    client.until("ok").await;

    let mut client = fixture.http2().await;
    let request = Request::post(format!("http://{}/", fixture.host()))
        .header("trailer", "x-sum")
        .body(())
        .unwrap();
    let (_answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"hi"), false).unwrap();
    let trailers = [("x-sum".parse().unwrap(), "7".parse().unwrap())];
    body.send_trailers(trailers.into_iter().collect()).unwrap();
    sandbox.head().await;
    sandbox.until("2\nhi\n0\nx-sum: 7\n\n").await;
}

#[tokio::test]
async fn response_trailers_pass_to_clients_that_accept_them() {
    let fixture = SocketFixture::new().await;
    let answer =
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n2\nok\n0\nX-Sum: 7\n\n";
    for (te, end) in [("TE: trailers\n", "x-sum: 7\n\n"), ("", "\n")] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\n{te}Connection: close\n\n");
        let (_, whole) = fixture.round_trip(&text, answer).await;
        assert!(whole.ends_with(&format!("2\nok\n0\n{end}")), "{whole}");
    }
    let mut client = fixture.http2().await;
    let (head, _) = fixture.http2_get(&mut client, "/");
    let mut sandbox = fixture.sandbox().await;
    sandbox.head().await;
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
    let mut client = fixture.client(text).await;
    let mut sandbox = fixture.sandbox().await;
    assert!(!sandbox.head().await.contains("expect"));
    client.until("HTTP/1.1 100 Continue\n\n").await;
    client.send("body").await;
    sandbox.until("body").await;
    sandbox.send(OK).await;
    client.until("ok").await;

    // A rejection is not delayed by the expectation.
    let paused = json!({"runtime_id": fixture.id});
    fixture.base.post("/pause", &paused).await;
    let mut client = fixture.client(text).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}

#[tokio::test]
async fn http_1_0_response_ends_with_the_connection() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.client("GET / HTTP/1.0\nHost: HOST\n\n").await;
    let mut sandbox = fixture.sandbox().await;
    assert!(sandbox.head().await.starts_with("get / http/1.1"));
    sandbox
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n")
        .await;
    let answer = client.rest().await;
    assert!(answer.ends_with("\n\nok"), "{answer}");
    assert!(
        !answer.to_lowercase().contains("transfer-encoding"),
        "{answer}"
    );
}

#[tokio::test]
async fn http_1_0_request_without_host_gets_the_base_host() {
    let fixture = SocketFixture::new().await;
    let text = format!("GET /{}/runtime/x HTTP/1.0\n\n", fixture.id);
    let (mut client, mut sandbox, head) = fixture.open(&text).await;
    for line in [
        "\nhost: rt.example.com\n",
        "\nx-forwarded-host: rt.example.com\n",
    ] {
        assert!(head.contains(line), "{head}");
    }
    sandbox.send(OK).await;
    assert!(client.rest().await.ends_with("ok"));
}

#[tokio::test]
async fn half_closed_client_counts_as_gone() {
    let fixture = SocketFixture::new().await;
    let (mut client, mut sandbox, _) = fixture.open("GET / HTTP/1.1\nHost: HOST\n\n").await;
    client.finish().await;
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn get_with_chunked_body_keeps_its_body() {
    let fixture = SocketFixture::new().await;
    let text = "GET / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n2\nhi\n0\n\n";
    let mut client = fixture.client(text).await;
    let mut sandbox = fixture.sandbox().await;
    assert!(sandbox.head().await.contains("transfer-encoding: chunked"));
    assert_eq!(sandbox.until("0\n\n").await, "2\nhi\n0\n\n");
    sandbox.send(OK).await;
    client.until("ok").await;
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
        let _client = fixture.client(text).await;
        let head = fixture.sandbox().await.head().await;
        assert!(
            head.contains(&format!("\nx-forwarded-for: {expected}\n")),
            "{head}"
        );
    }
}

#[tokio::test]
async fn limits_connections_to_sandboxes() {
    let mut config = config();
    config.max_upstream_connections = 1;
    let fixture = SocketFixture::with(config).await;
    let text = "GET / HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let (mut first, mut sandbox, _) = fixture.open(text).await;
    let answer = fixture.exchange(text).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
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
    let request = || {
        Request::post(format!("http://{}/", fixture.host()))
            .body(())
            .unwrap()
    };
    let mut stalled = Vec::new();
    for _ in 0..8 {
        client = client.ready().await.unwrap();
        let (answer, mut body) = client.send_request(request(), false).unwrap();
        let mut sandbox = fixture.sandbox().await;
        sandbox.head().await;
        fill_window(&mut body).await;
        stalled.push((answer, body, sandbox));
    }
    client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(request(), false).unwrap();
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
    let (mut client, mut sandbox, head) = fixture.open(text).await;
    assert!(
        head.contains("access-control-request-method: put"),
        "{head}"
    );
    sandbox
        .send("HTTP/1.1 204 No Content\nAccess-Control-Allow-Origin: https://a\n\n")
        .await;
    let head = client.head().await;
    let origins = head.matches("access-control-allow-origin").count();
    assert_eq!(
        (origins, head.starts_with("http/1.1 204")),
        (1, true),
        "{head}"
    );
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
        let mut sandbox = fixture.sandbox().await;
        sandbox.until(&format!("\n\n{body}")).await;
        drop(sandbox);
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{head}{answer}");
    }
    let mut client = fixture.client("GET /next HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = fixture.sandbox().await;
    assert!(sandbox.head().await.starts_with("get /next "));
    sandbox.send(OK).await;
    client.until("ok").await;
}

/// A later readiness of the same Pod.
fn again(time: i64) -> SandboxStatus {
    SandboxStatus {
        ready_at: Some(Time(Timestamp::from_second(time).unwrap())),
        ..ready("127.0.0.1")
    }
}

#[tokio::test]
async fn idempotent_request_is_retried_after_connection_loss() {
    let fixture = SocketFixture::new().await;
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        let text = format!("{method} /again HTTP/1.1\nHost: HOST\nConnection: close\n\n");
        let mut client = fixture.client(&text).await;
        let mut sandbox = fixture.sandbox().await;
        let first = sandbox.head().await;
        drop(sandbox);
        let mut sandbox = fixture.sandbox().await;
        assert_eq!(sandbox.head().await, first);
        sandbox
            .send("HTTP/1.1 204 No Content\nConnection: close\n\n")
            .await;
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
        let mut sandbox = fixture.sandbox().await;
        sandbox.head().await;
        drop(sandbox);
    }
    fixture.base.report(&fixture.id, &again(2));
    let mut sandbox = fixture.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.contains("\nupgrade: x\n"), "{head}");
    sandbox
        .send("HTTP/1.1 204 No Content\nConnection: close\n\n")
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 204 "));
    // A request that crashes its server every time is not sent again.
    let mut client = fixture.client(text).await;
    for turn in 0..3 {
        let mut sandbox = fixture.sandbox().await;
        sandbox.head().await;
        drop(sandbox);
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
    let text = "GET /odd HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    for odd in ["nonsense\n\n", "HTTP/1.1 200 OK\nContent-Length: x\n\n"] {
        let (_, answer) = fixture.round_trip(text, odd).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("is not HTTP"), "{answer}");
    }
}

/// All forms work, whichever one the API returns.
#[tokio::test]
async fn returned_url_and_all_other_forms_reach_the_sandbox() {
    for form in [UrlForm::Nested, UrlForm::Flat, UrlForm::Path] {
        let mut config = config();
        config.urls.form = form;
        let fixture = SocketFixture::with(config).await;
        let (code, info) = fixture.base.get("/sessions/s1").await;
        assert_eq!(code, 200);
        let id = &fixture.id;
        let urls = [
            format!("https://{id}.rt.example.com"),
            format!("https://{id}-rt.example.com"),
            format!("https://rt.example.com/{id}/runtime"),
        ];
        let ours = [UrlForm::Nested, UrlForm::Flat, UrlForm::Path];
        let ours = ours.iter().position(|f| *f == form).unwrap();
        assert_eq!(info["url"], json!(urls[ours]));
        for url in &urls {
            let (host, path) = url["https://".len()..]
                .split_once('/')
                .unwrap_or((&url["https://".len()..], ""));
            let path = if path.is_empty() {
                String::new()
            } else {
                format!("/{path}")
            };
            let text = format!("GET {path}/x HTTP/1.1\nHost: {host}\nConnection: close\n\n");
            let mut client = fixture.client(&text).await;
            let mut sandbox = fixture.sandbox().await;
            assert!(sandbox.head().await.starts_with("get /x "), "{url}");
            sandbox.send(OK).await;
            assert!(client.rest().await.ends_with("ok"), "{url}");
        }
    }
}

#[tokio::test]
async fn links_and_cookies_are_restricted_to_prefix_or_host() {
    let fixture = SocketFixture::new().await;
    let id = &fixture.id;
    let answer = "HTTP/1.1 302 Found\nLocation: /login?a=1\nSet-Cookie: a=1; Path=/\n\
                  Set-Cookie: b=2; Domain=rt.example.com\nService-Worker-Allowed: /\n\
                  Content-Length: 0\n\n";
    for (target, host, prefix) in [
        (
            format!("//{id}/work-1/x"),
            "rt.example.com",
            format!("/{id}/work-1"),
        ),
        ("/x".to_owned(), "HOST", String::new()),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let (mut client, mut sandbox, _) = fixture.open(&text).await;
        sandbox.send(answer).await;
        let head = client.head().await;
        let (path, default) = match &*prefix {
            "" => ("/", String::new()),
            prefix => (prefix, format!("; path={prefix}")),
        };
        for line in [
            format!("\nlocation: {prefix}/login?a=1\n"),
            format!("\nset-cookie: a=1; path={path}\n"),
            format!("\nset-cookie: b=2{default}\n"),
        ] {
            assert!(head.contains(&line), "{line}{head}");
        }
        let rules = head.contains("\nservice-worker-allowed: /\n");
        assert_eq!(rules, prefix.is_empty(), "{head}");
    }
}

#[tokio::test]
async fn cookies_of_upgrade_response_are_restricted() {
    let fixture = SocketFixture::new().await;
    let id = &fixture.id;
    for (target, host, path) in [
        (
            format!("/{id}/work-1/ws"),
            "rt.example.com",
            format!("/{id}/work-1"),
        ),
        ("/ws".to_owned(), "HOST", "/".to_owned()),
    ] {
        let text = format!(
            "GET {target} HTTP/1.1\nHost: {host}\nConnection: Upgrade\nUpgrade: websocket\n\n"
        );
        let (mut client, mut sandbox, _) = fixture.open(&text).await;
        let switch = "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: websocket\n\
                      Set-Cookie: a=1; Path=/; Domain=example.com\n\n";
        sandbox.send(switch).await;
        let head = client.head().await;
        let line = format!("\nset-cookie: a=1; path={path}\n");
        assert!(head.contains(&line), "{line}{head}");
    }
}

#[tokio::test]
async fn vs_code_sees_its_prefix_when_configured() {
    for keep_vscode_prefix in [true, false] {
        let mut config = config();
        config.keep_vscode_prefix = keep_vscode_prefix;
        let fixture = SocketFixture::with(config).await;
        fixture.declare("vscode");
        let id = &fixture.id;
        let text = format!("GET /{id}/vscode/x?tkn=1 HTTP/1.1\nHost: rt.example.com\n\n");
        let (mut client, mut sandbox, head) = fixture.open(&text).await;
        let path = if keep_vscode_prefix {
            format!("/{id}/vscode/x?tkn=1")
        } else {
            "/x?tkn=1".to_owned()
        };
        assert!(head.starts_with(&format!("get {path} ")), "{head}");
        sandbox
            .send("HTTP/1.1 302 Found\nLocation: /y\nSet-Cookie: a=1; Path=/\nService-Worker-Allowed: /\nContent-Length: 0\n\n")
            .await;
        let head = client.head().await;
        // The origin is shared in either mode.
        let path = format!("\nset-cookie: a=1; path=/{id}/vscode\n");
        assert!(head.contains(&path), "{head}");
        assert!(!head.contains("service-worker-allowed"), "{head}");
        let root = if keep_vscode_prefix {
            ""
        } else {
            &format!("/{id}/vscode")
        };
        assert!(head.contains(&format!("\nlocation: {root}/y\n")), "{head}");
        // Other ports never see their prefix.
        let text = format!("GET /{id}/work-1/x HTTP/1.1\nHost: rt.example.com\n\n");
        client.send(&text).await;
        assert!(sandbox.head().await.starts_with("get /x "));
    }
}

#[tokio::test]
async fn trace_context_is_passed_on_or_started() {
    let fixture = SocketFixture::new().await;
    let known = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (lines, expected) in [
        (
            format!("Traceparent: {known}\nTracestate: a=1\n"),
            Some(known),
        ),
        ("Traceparent: nonsense\nTracestate: a=1\n".into(), None),
        (String::new(), None),
    ] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\nConnection: close\n{lines}\n");
        let (mut client, mut sandbox, head) = fixture.open(&text).await;
        let line = head.lines().find_map(|l| l.strip_prefix("traceparent: "));
        let line = line.unwrap().to_owned();
        if let Some(expected) = expected {
            assert_eq!(line, expected);
        } else {
            assert_eq!((line.len(), line.ends_with("-00")), (55, true), "{line}");
        }
        assert_eq!(head.contains("\ntracestate: "), expected.is_some());
        sandbox.send(OK).await;
        client.until("ok").await;
    }
}
