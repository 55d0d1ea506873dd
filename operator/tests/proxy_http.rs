//! Requests and answers on their way through: versions, trailers, expectations, links, ports, and
//! which connection they take.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use bytes::Bytes;
use crds::sandbox::SandboxStatus;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator::gateway::ProxyConfig;
use operator::urls::UrlForm;
use serde_json::json;

use support::stage::{LIMITS, OK, Stage};
use support::world::{config, ready, starting};

#[tokio::test]
async fn http_2_reaches_the_sandbox_as_http_1() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let request = Request::get(format!("http://{}/a//b?c=%20", stage.host()))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("x-api-key", "secret")
        .body(())
        .unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.starts_with("get /a//b?c=%20 http/1.1\n"), "{head}");
    for line in [
        format!("\nhost: {}\n", stage.host()),
        format!("\nx-forwarded-host: {}\n", stage.host()),
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
    // What the gateway has said of itself meanwhile.
    assert!(!client.is_extended_connect_protocol_enabled());
    assert_eq!(client.current_max_send_streams(), 256);
}

#[tokio::test]
async fn requests_share_an_http_2_connection() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let mut answers = Vec::new();
    for n in 0..50 {
        let uri = format!("http://{}/{n}", stage.host());
        let request = Request::get(uri).body(()).unwrap();
        client = client.ready().await.unwrap();
        answers.push(client.send_request(request, true).unwrap().0);
    }
    let mut sandboxes = Vec::new();
    for _ in 0..50 {
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
        let path = head.split(' ').nth(1).unwrap().to_owned();
        sandboxes.push((path, sandbox));
    }
    // The last one is answered first.
    for (path, sandbox) in sandboxes.iter_mut().rev() {
        let head = format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n{path}", path.len());
        sandbox.send(&head).await;
    }
    for (n, answer) in answers.into_iter().enumerate() {
        let body = answer.await.unwrap().into_body();
        assert_eq!(whole(body).await, format!("/{n}"));
    }
}

#[cfg(test)]
async fn whole(mut body: h2::RecvStream) -> String {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn trailers_of_a_request_pass_without_our_own_headers() {
    let stage = Stage::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\
                Trailer: X-Sum, X-API-Key, X-Forwarded-For\n\n\
                2\nhi\n0\nX-Sum: 7\nX-API-Key: secret\nX-Forwarded-For: 1.2.3.4\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    assert!(sandbox.head().await.contains("trailer: x-sum"));
    assert_eq!(sandbox.until("\n\n").await, "2\nhi\n0\nx-sum: 7\n\n");
    sandbox.send(OK).await;
    client.until("ok").await;

    let mut client = stage.http2().await;
    let request = Request::post(format!("http://{}/", stage.host()))
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
async fn trailers_of_an_answer_pass_to_who_takes_them() {
    let stage = Stage::new().await;
    let answer =
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n2\nok\n0\nX-Sum: 7\n\n";
    for (te, end) in [("TE: trailers\n", "x-sum: 7\n\n"), ("", "\n")] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\n{te}Connection: close\n\n");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        sandbox.send(answer).await;
        let whole = client.rest().await;
        assert!(whole.ends_with(&format!("2\nok\n0\n{end}")), "{whole}");
    }
    let mut client = stage.http2().await;
    let uri = format!("http://{}/", stage.host());
    let request = Request::get(uri).body(()).unwrap();
    let (head, _) = client.send_request(request, true).unwrap();
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(answer).await;
    let mut body = head.await.unwrap().into_body();
    while body.data().await.is_some() {}
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test]
async fn a_client_continues_when_its_sandbox_takes_the_body() {
    let stage = Stage::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nExpect: 100-continue\nContent-Length: 4\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    assert!(!sandbox.head().await.contains("expect"));
    client.until("HTTP/1.1 100 Continue\n\n").await;
    client.send("body").await;
    sandbox.until("body").await;
    sandbox.send(OK).await;
    client.until("ok").await;

    // Who will not take it, says so at once.
    let paused = json!({"runtime_id": stage.id});
    stage.world.post("/pause", &paused).await;
    let mut client = stage.client(text).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_an_answer_that_ends_with_the_connection() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET / HTTP/1.0\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
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
async fn a_client_of_http_1_0_that_names_no_host_is_told_of_no_pod() {
    let stage = Stage::new().await;
    let text = format!("GET /{}/runtime/x HTTP/1.0\n\n", stage.id);
    let mut client = stage.client(&text).await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
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
async fn who_ends_its_side_of_a_request_has_left() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    client.finish().await;
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn questions_of_browsers_are_the_sandboxs_to_answer() {
    let stage = Stage::new().await;
    let text = "OPTIONS /x HTTP/1.1\nHost: HOST\nOrigin: https://a\n\
                Access-Control-Request-Method: PUT\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
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
async fn a_connection_to_a_sandbox_is_used_again_until_its_pod_changes() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET /1 HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    for n in 1..4 {
        assert!(sandbox.head().await.starts_with(&format!("get /{n} ")));
        sandbox.send(OK).await;
        client.until("ok").await;
        let next = format!("GET /{} HTTP/1.1\nHost: {}\n\n", n + 1, stage.host());
        client.send(&next).await;
    }
    sandbox.head().await;
    sandbox.send(OK).await;
    client.until("ok").await;
    let open = &stage.world.gateway.metrics().upstream_connections;
    assert_eq!(open.get(), 1);
    // Nothing is under way, and yet the connection ends at once.
    stage.world.report(&stage.id, &ready("127.0.0.2"));
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn what_a_sandbox_may_have_done_is_not_sent_again() {
    let stage = Stage::new().await;
    for (head, body) in [
        ("POST /lost HTTP/1.1\nContent-Length: 0", ""),
        ("PATCH /lost HTTP/1.1\nContent-Length: 4", "body"),
        // It would do no harm twice, but its body is no longer there.
        ("PUT /lost HTTP/1.1\nContent-Length: 4", "body"),
    ] {
        let text = format!("{head}\nHost: HOST\nConnection: close\n\n{body}");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.until(&format!("\n\n{body}")).await;
        drop(sandbox);
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{head}{answer}");
    }
    let mut client = stage.client("GET /next HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    assert!(sandbox.head().await.starts_with("get /next "));
    sandbox.send(OK).await;
    client.until("ok").await;
}

/// Ready for the second, third or any later time.
#[cfg(test)]
fn again(time: i64) -> SandboxStatus {
    SandboxStatus {
        ready_at: Some(Time(Timestamp::from_second(time).unwrap())),
        ..ready("127.0.0.1")
    }
}

#[tokio::test]
async fn what_can_be_done_twice_survives_a_connection_that_breaks() {
    let stage = Stage::new().await;
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        let text = format!("{method} /again HTTP/1.1\nHost: HOST\nConnection: close\n\n");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let first = sandbox.head().await;
        drop(sandbox);
        let mut sandbox = stage.sandbox().await;
        assert_eq!(sandbox.head().await, first);
        sandbox
            .send("HTTP/1.1 204 No Content\nConnection: close\n\n")
            .await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{method} {answer}");
    }
}

#[tokio::test]
async fn what_can_be_done_twice_waits_for_a_server_that_has_crashed() {
    let stage = Stage::new().await;
    let text = "GET /again HTTP/1.1\nHost: HOST\nUpgrade: x\nConnection: close, upgrade\n\n";
    let mut client = stage.client(text).await;
    for _ in 0..2 {
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        drop(sandbox);
    }
    stage.world.report(&stage.id, &again(2));
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.contains("\nupgrade: x\n"), "{head}");
    sandbox
        .send("HTTP/1.1 204 No Content\nConnection: close\n\n")
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 204 "));
    // One that crashes with every such request gets it no more.
    let mut client = stage.client(text).await;
    for turn in 0..3 {
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        drop(sandbox);
        if turn == 1 {
            stage.world.report(&stage.id, &again(3));
        }
    }
    assert!(client.rest().await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn what_can_be_done_twice_follows_a_pod_that_is_replaced() {
    let stage = Stage::new().await;
    let text = "GET /again HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    stage.world.report(&stage.id, &starting(true));
    assert_eq!(sandbox.rest().await, "");
    stage.world.report(&stage.id, &again(2));
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(OK).await;
    assert!(client.rest().await.ends_with("ok"));
}

#[tokio::test]
async fn what_is_no_answer_is_not_asked_for_again() {
    let stage = Stage::new().await;
    let text = "GET /odd HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    for odd in ["nonsense\n\n", "HTTP/1.1 200 OK\nContent-Length: x\n\n"] {
        let mut client = stage.client(text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        sandbox.send(odd).await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("is not HTTP"), "{answer}");
    }
}

/// All forms work, whichever one is handed out.
#[tokio::test]
async fn the_url_that_is_handed_out_leads_to_the_sandbox_and_so_do_all_others() {
    for form in [UrlForm::Nested, UrlForm::Flat, UrlForm::Path] {
        let mut config = config();
        config.urls.form = form;
        let stage = Stage::with(config, LIMITS).await;
        let (code, info) = stage.world.get("/sessions/s1").await;
        assert_eq!(code, 200);
        let id = &stage.id;
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
            let mut client = stage.client(&text).await;
            let mut sandbox = stage.sandbox().await;
            assert!(sandbox.head().await.starts_with("get /x "), "{url}");
            sandbox.send(OK).await;
            assert!(client.rest().await.ends_with("ok"), "{url}");
        }
    }
}

#[tokio::test]
async fn links_and_cookies_stay_below_a_path_and_cookies_on_a_host() {
    let stage = Stage::new().await;
    let id = &stage.id;
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
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
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
async fn the_answer_that_opens_a_tunnel_keeps_its_cookies_at_home_too() {
    let stage = Stage::new().await;
    let id = &stage.id;
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
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        let switch = "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: websocket\n\
                      Set-Cookie: a=1; Path=/; Domain=example.com\n\n";
        sandbox.send(switch).await;
        let head = client.head().await;
        let line = format!("\nset-cookie: a=1; path={path}\n");
        assert!(head.contains(&line), "{line}{head}");
    }
}

#[tokio::test]
async fn every_declared_port_has_a_host_and_a_path() {
    let stage = Stage::new().await;
    stage.declare("my-app");
    let id = &stage.id;
    for (target, host, seen) in [
        ("/x".to_owned(), format!("my-app-{id}.rt.example.com"), "/x"),
        ("/x".to_owned(), format!("my-app-{id}-rt.example.com"), "/x"),
        (format!("/{id}/my-app/x"), "rt.example.com".to_owned(), "/x"),
        (format!("/{id}/my-app"), "rt.example.com".to_owned(), "/"),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
        assert!(head.starts_with(&format!("get {seen} ")), "{head}");
        sandbox.send(OK).await;
        assert!(client.rest().await.ends_with("ok"));
    }
}

#[tokio::test]
async fn vs_code_may_see_its_prefix() {
    for keep_vscode_prefix in [true, false] {
        let mut config = config();
        config.proxy = ProxyConfig {
            keep_vscode_prefix,
            ..ProxyConfig::default()
        };
        let stage = Stage::with(config, LIMITS).await;
        stage.declare("vscode");
        let id = &stage.id;
        let text = format!("GET /{id}/vscode/x?tkn=1 HTTP/1.1\nHost: rt.example.com\n\n");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
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
        // It shares its origin with all others, whatever it sees.
        let path = format!("\nset-cookie: a=1; path=/{id}/vscode\n");
        assert!(head.contains(&path), "{head}");
        assert!(!head.contains("service-worker-allowed"), "{head}");
        let root = if keep_vscode_prefix {
            ""
        } else {
            &format!("/{id}/vscode")
        };
        assert!(head.contains(&format!("\nlocation: {root}/y\n")), "{head}");
        // Other ports lose theirs in any case.
        let text = format!("GET /{id}/work-1/x HTTP/1.1\nHost: rt.example.com\n\n");
        client.send(&text).await;
        assert!(sandbox.head().await.starts_with("get /x "));
    }
}

#[tokio::test]
async fn a_trace_is_passed_on_or_begun() {
    let stage = Stage::new().await;
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
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
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
