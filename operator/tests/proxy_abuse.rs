//! What attackers and broken clients send: nothing of it reaches a sandbox as something else, and
//! nobody takes more than a share.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use operator::gateway::ProxyConfig;
use operator::gateway::serve::Limits;
use tokio::time::Instant;

use support::stage::{LIMITS, OK, Stage};
use support::world::config;

/// Heads of which two parties could disagree where the request ends, or for whom it is.
const UNCLEAR: [&str; 29] = [
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
async fn unclear_heads_reach_nobody() {
    let stage = Stage::new().await;
    for head in UNCLEAR {
        // What follows a clear end is a request of its own; here no end is clear.
        let hidden = if head.starts_with("POST") {
            "GET /smuggled HTTP/1.1\nHost: HOST\n\n"
        } else {
            ""
        };
        let mut client = stage.client(&format!("{head}{hidden}")).await;
        client.finish().await;
        let answer = client.rest().await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{head}{answer}"
        );
    }
    // The first that a sandbox sees is an honest one.
    let mut client = stage.client("GET /honest HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    assert!(sandbox.head().await.starts_with("get /honest "));
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn a_body_that_breaks_its_own_rules_ends_the_request() {
    let stage = Stage::new().await;
    for body in ["zz\nhi\n", "-2\nhi\n", "2\nhiX", "fffffffffffffffff\nhi\n"] {
        let head = "POST /broken HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n";
        let mut client = stage.client(&format!("{head}{body}")).await;
        let mut sandbox = stage.sandbox().await;
        // No end of the body is made up, so the sandbox knows that it is not whole.
        assert!(!sandbox.rest().await.contains("0\n\n"));
        client.rest().await;
    }
}

#[tokio::test]
async fn chunk_extensions_and_names_in_connection_hide_nothing() {
    let stage = Stage::new().await;
    let mut client = stage
        .client(
            "POST / HTTP/1.1\nHost: HOST\nConnection: Host, Content-Length, X-Session-API-Key\n\
             X-Session-API-Key: key\nTransfer-Encoding: chunked\n\n\
             2;a=\"b\";c\nhi\n0;d\n\n",
        )
        .await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    assert!(
        head.contains(&format!("\nhost: {}\n", stage.host())),
        "{head}"
    );
    assert_eq!(sandbox.until("0\n\n").await, "2\nhi\n0\n\n");
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn an_upgrade_to_http_2_is_no_way_past_us() {
    for wish in ["h2c", "foo, H2C", "websocket,h2c", "foo\nUpgrade: h2c"] {
        let stage = Stage::new().await;
        let text = format!(
            "GET / HTTP/1.1\nHost: HOST\nConnection: Upgrade, HTTP2-Settings\nUpgrade: {wish}\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\n\n"
        );
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
        assert!(
            !head.contains("upgrade") && !head.contains("http2-settings"),
            "{wish}: {head}"
        );
        sandbox.send(OK).await;
        assert!(client.head().await.starts_with("http/1.1 200 "), "{wish}");
    }
}

#[tokio::test]
async fn a_server_that_switches_to_http_2_by_itself_gets_no_tunnel() {
    let stage = Stage::new().await;
    let text = "GET / HTTP/1.1\nHost: HOST\nConnection: Upgrade\nUpgrade: foo\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox
        .send("HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: foo, h2c\n\n")
        .await;
    assert!(client.head().await.starts_with("http/1.1 502 "));
}

#[tokio::test]
async fn names_that_a_server_takes_for_ours_do_not_pass() {
    let stage = Stage::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nX-Real-IP: 6.6.6.6\nX_Real_IP: 6.6.6.6\n\
                X_Forwarded_For: 6.6.6.6\nX-Forwarded_For: 6.6.6.6\nX_API_KEY: 6.6.6.6\n\
                X_Mine: kept\nTransfer-Encoding: chunked\n\n\
                2\nhi\n0\nX_Forwarded_For: 6.6.6.6\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.contains("\nx-forwarded-for: 127.0.0.1\n"), "{head}");
    assert!(head.contains("\nx_mine: kept\n"), "{head}");
    assert!(!head.contains("6.6.6.6"), "{head}");
    assert!(!sandbox.until("0\n\n").await.contains("6.6.6.6"));
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn methods_that_turn_a_proxy_into_something_else_are_refused() {
    let stage = Stage::new().await;
    for head in [
        "CONNECT HOST:80 HTTP/1.1\nHost: HOST:80\n",
        "CONNECT 10.0.0.1:22 HTTP/1.1\nHost: 10.0.0.1:22\n",
        "TRACE / HTTP/1.1\nHost: HOST\n",
    ] {
        let answer = stage
            .exchange(&format!("{head}Connection: close\n\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{head}{answer}");
    }
}

#[tokio::test]
async fn http_2_names_one_host() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let uri = format!("http://{}/", stage.host());
    let request = Request::get(&uri).header("host", "other").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 400);
    // Nor may it speak of a connection.
    for (name, value) in [("connection", "x"), ("transfer-encoding", "chunked")] {
        client = client.ready().await.unwrap();
        let request = Request::get(&uri).header(name, value).body(()).unwrap();
        let refused = match client.send_request(request, true) {
            Err(_) => true,
            Ok((answer, _)) => answer.await.is_err(),
        };
        assert!(refused, "{name}");
    }
}

#[tokio::test]
async fn a_length_that_is_a_lie_resets_an_http_2_stream() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let request = Request::post(format!("http://{}/", stage.host()))
        .header("content-length", "2")
        .body(())
        .unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"GET /smuggled"), true)
        .unwrap();
    // Either the gateway itself refuses it, or the sandbox gets no more than the length.
    let mut sandbox = tokio::select! {
        answer = answer => {
            assert!(answer.is_err_and(|error| error.is_reset()));
            return;
        }
        sandbox = stage.sandbox() => sandbox,
    };
    assert!(!sandbox.rest().await.contains("GET"));
}

#[tokio::test]
async fn heads_have_a_limit() {
    let stage = Stage::new().await;
    let many: Vec<_> = (0..200).map(|n| format!("X-{n}: 1\n")).collect();
    let many = many.concat();
    let large = format!("X: {}\n", "x".repeat(200 << 10));
    for lines in [many, large.clone()] {
        let text = format!("GET / HTTP/1.1\nHost: HOST\n{lines}\n");
        let answer = stage.exchange(&text).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let text = format!("GET /{} HTTP/1.1\nHost: HOST\n\n", "x".repeat(200 << 10));
    let answer = stage.exchange(&text).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    let mut client = stage.http2().await;
    let request = Request::get(format!("http://{}/", stage.host()))
        .header("x", "x".repeat(200 << 10))
        .body(())
        .unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert!(answer.await.is_ok_and(|answer| answer.status() == 431));
}

#[tokio::test(start_paused = true)]
async fn slow_and_silent_clients_of_either_version_are_cut_off() {
    let stage = Stage::new().await;
    let settings = "\0\0\0\u{4}\0\0\0\0\0";
    for (sent, seconds) in [
        // Nothing at all.
        (String::new(), 85..125),
        // A preface that never ends.
        ("PR".into(), 9..12),
        // An HTTP/2 client that asks for nothing.
        (
            format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{settings}"),
            45..125,
        ),
        // The beginning of a head, in either version.
        ("GET / HTTP/1.1\r\nHost: x\r\nX:".into(), 9..12),
        (
            format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{settings}\0\0\u{10}\u{1}\u{1}\0\0\0\u{1}"),
            45..125,
        ),
    ] {
        let start = Instant::now();
        let mut client = stage.client("").await;
        client.send_raw(sent.as_bytes()).await;
        client.drain().await;
        let took = start.elapsed().as_secs();
        assert!(seconds.contains(&took), "{sent:?} after {took} s");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let limits = Limits {
        connections: 2,
        ..LIMITS
    };
    let stage = Stage::with(config(), limits).await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut first = stage.client(text).await;
    first.until("}").await;
    let mut second = stage.client(text).await;
    second.until("}").await;
    let mut third = stage.client(text).await;
    // Those that are in are served, whoever waits outside.
    for _ in 0..10 {
        first.send(text).await;
        first.until("}").await;
    }
    assert_eq!(stage.world.gateway.metrics().connections.get(), 2);
    drop(second);
    third.until("}").await;
}

#[tokio::test]
async fn an_address_has_a_share_of_connections() {
    let limits = Limits {
        per_address: NonZeroUsize::new(2),
        ..LIMITS
    };
    let stage = Stage::with(config(), limits).await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut first = stage.client(text).await;
    first.until("}").await;
    let mut second = stage.client(text).await;
    second.until("}").await;
    let metrics = stage.world.gateway.metrics().clone();
    assert_eq!(stage.client("").await.rest().await, "");
    assert_eq!(metrics.refused_connections.get(), 1);
    // Nobody else suffers from it.
    let other = IpAddr::from([127, 0, 0, 2]);
    stage.client_from(other, text).await.until("}").await;
    // A tunnel or an answer under way is a connection still; one that has ended is none.
    first.finish().await;
    first.rest().await;
    while metrics.connections.get() > 1 {
        tokio::task::yield_now().await;
    }
    stage.client(text).await.until("}").await;
    assert_eq!(metrics.refused_connections.get(), 1);
}

/// What a client sends after it was refused, without a look at the answer.
const REFUSED: usize = 32 << 20;

#[tokio::test]
async fn who_is_refused_while_still_sending_can_read_why() {
    let stage = Stage::new().await;
    for (target, host, code) in [
        ("/x", "vscode-HOST", 404),
        ("/start", "gateway", 401),
        ("/nothing", "gateway", 404),
    ] {
        for framing in [
            format!("Content-Length: {REFUSED}"),
            "Transfer-Encoding: chunked".into(),
        ] {
            let text = format!("POST {target} HTTP/1.1\nHost: {host}\n{framing}\n\n");
            let mut client = stage.client(&text).await;
            let piece = [b'0'; 1 << 14];
            for _ in 0..REFUSED / piece.len() {
                if framing.starts_with("Transfer") {
                    client.send_raw(b"4000\r\n").await;
                }
                client.send_raw(&piece).await;
                if framing.starts_with("Transfer") {
                    client.send_raw(b"\r\n").await;
                }
            }
            let answer = client.rest().await;
            let status = format!("HTTP/1.1 {code} ");
            assert!(answer.starts_with(&status), "{answer}");
            // So nobody sends the next request into the closing connection.
            assert!(answer.contains("\nconnection: close\n"), "{answer}");
            assert!(answer.contains("\"detail\""), "{answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_and_stays_is_cut_off() {
    let stage = Stage::new().await;
    let open = &stage.world.gateway.metrics().connections;
    let text = "POST /x HTTP/1.1\nHost: vscode-HOST\nContent-Length: 9\n\n";
    let mut client = stage.client(text).await;
    let start = Instant::now();
    assert!(client.rest().await.starts_with("HTTP/1.1 404 "));
    // The answer came at once; the connection is the client's until it is.
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(open.get(), 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(open.get(), 0);
    // Whoever has said all is not waited for.
    let text = "POST /x HTTP/1.1\nHost: vscode-HOST\nConnection: close\n\n";
    let mut client = stage.client(text).await;
    client.rest().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(open.get(), 0);
}

#[tokio::test]
async fn a_sandbox_has_a_share_of_requests() {
    let mut config = config();
    config.proxy = ProxyConfig {
        requests_per_sandbox: 2,
        ..ProxyConfig::default()
    };
    let stage = Stage::with(config, LIMITS).await;
    let mut open = Vec::new();
    for path in ["/slow", "/alive"] {
        let text = format!("GET {path} HTTP/1.1\nHost: HOST\n\n");
        let client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        open.push((client, sandbox));
    }
    let text = "GET /more HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let answer = stage.exchange(text).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("too many requests under way"), "{answer}");
    let (mut client, mut sandbox) = open.remove(0);
    sandbox.send(OK).await;
    client.until("ok").await;
    let mut client = stage.client(text).await;
    sandbox.head().await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

/// A client that opens and cancels streams as fast as it can is turned away, and others are served.
#[tokio::test]
async fn streams_that_are_reset_at_once_have_an_end() {
    let stage = Stage::new().await;
    let mut attacker = stage.http2().await;
    let mut resets = 0;
    while let Ok(ready) = attacker.ready().await {
        attacker = ready;
        let request = Request::get("http://gateway/nothing").body(()).unwrap();
        let Ok((_, mut sent)) = attacker.send_request(request, true) else {
            break;
        };
        sent.send_reset(h2::Reason::CANCEL);
        resets += 1;
        if resets == 20_000 {
            break;
        }
        if resets % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let wait = Duration::from_secs(20);
    let text = "GET /nothing HTTP/1.1\nHost: gateway\nConnection: close\n\n";
    let answer = tokio::time::timeout(wait, stage.exchange(text)).await;
    assert!(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 404 ")));
}
