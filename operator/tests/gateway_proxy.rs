//! The proxy over real sockets, byte by byte.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::net::IpAddr;
use std::time::Duration;

use operator::urls::loopback_address;
use tokio::time::Instant;

use support::stage::{OK, Stage};
use support::world::{ready, starting};

#[tokio::test]
async fn headers_of_one_connection_stay_on_it() {
    let stage = Stage::new().await;
    let mut client = stage
        .client(
            "GET /a HTTP/1.1\nHost: HOST\nConnection: keep-alive, X-Hop\nX-Hop: 1\n\
             Keep-Alive: timeout=5\nTE: trailers\nProxy-Authorization: x\nX-API-Key: secret\n\
             X-Session-API-Key: session\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil\n\
             X-Forwarded-Prefix: /evil\nForwarded: for=evil\nX-Kept: yes\n\n",
        )
        .await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    // The trace is new each time.
    let lines = head.trim_end().lines().skip(1);
    let mut lines: Vec<_> = lines.filter(|l| !l.starts_with("traceparent: ")).collect();
    lines.sort_unstable();
    let host = stage.host();
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
async fn paths_lose_their_prefix_and_nothing_else() {
    let stage = Stage::new().await;
    let id = &stage.id;
    for (target, expected) in [
        (format!("/{id}/runtime"), "/"),
        (format!("/{id}/runtime?a=1"), "/?a=1"),
        (format!("/{id}/runtime/"), "/"),
        (format!("/{id}/runtime/alive"), "/alive"),
        (format!("//{id}/runtime/alive"), "/alive"),
        (
            format!("/{id}/work-1//a/../b/./%2F%20?q=%20&&x"),
            "//a/../b/./%2f%20?q=%20&&x",
        ),
    ] {
        let text = format!("GET {target} HTTP/1.1\nHost: gateway\nConnection: close\n\n");
        let mut client = stage.client(&text).await;
        let mut sandbox = stage.sandbox().await;
        let head = sandbox.head().await;
        assert!(
            head.starts_with(&format!("get {expected} http/1.1\n")),
            "{head}"
        );
        assert!(
            head.contains(&format!("x-forwarded-prefix: {}", prefix(&target))),
            "{head}"
        );
        sandbox.send(OK).await;
        assert!(client.rest().await.contains("ok"));
    }
}

#[cfg(test)]
fn prefix(target: &str) -> String {
    let end = target.find("work-1").map_or_else(
        || target.find("runtime").map(|at| at + 7),
        |at| Some(at + 6),
    );
    // However many slashes the client wrote.
    format!("/{}", target[..end.unwrap()].trim_start_matches('/'))
}

#[tokio::test]
async fn every_form_of_url_leads_to_the_sandbox() {
    let stage = Stage::new().await;
    let id = &stage.id;
    let loopback = IpAddr::from(loopback_address(id));
    for (ip, host) in [
        (stage.address.ip(), format!("{id}.rt.example.com")),
        (stage.address.ip(), format!("{id}-RT.example.com:8443")),
        (stage.address.ip(), format!("work-1-{id}.rt.example.com.")),
        (loopback, format!("{loopback}:{}", stage.address.port())),
    ] {
        let text = format!("GET /x HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let mut client = stage.client_at(ip, &text).await;
        let mut sandbox = stage.sandbox().await;
        assert!(
            sandbox.head().await.starts_with("get /x http/1.1"),
            "{host}"
        );
        sandbox.send(OK).await;
        assert!(client.rest().await.ends_with("ok"), "{host}");
    }
}

#[tokio::test]
async fn unclear_requests_are_refused() {
    let stage = Stage::new().await;
    for (head, code) in [
        ("GET / HTTP/1.1\nHost: HOST\nHost: HOST\n", 400),
        ("GET / HTTP/1.1\n", 400),
        ("GET http://other/ HTTP/1.1\nHost: HOST\n", 400),
        ("GET / HTTP/1.1\nHost: a@HOST\n", 400),
        ("GET / HTTP/1.1\nHost: 127.200.1.1\n", 404),
        ("GET / HTTP/1.1\nHost: vscode-HOST\n", 404),
        (
            "GET / HTTP/1.1\nHost: aaaaaaaaaaaaaaaa.rt.example.com\n",
            404,
        ),
        ("GET /aaaaaaaaaaaaaaaa/runtime/ HTTP/1.1\nHost: x\n", 404),
        (
            "POST / HTTP/1.1\nHost: HOST\nContent-Length: 1\nContent-Length: 2\n",
            400,
        ),
        (
            "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: gzip\n",
            400,
        ),
    ] {
        let answer = stage
            .exchange(&format!("{head}Connection: close\n\n"))
            .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{head}{answer}"
        );
    }
}

#[tokio::test]
async fn two_lengths_reach_the_sandbox_as_one() {
    let stage = Stage::new().await;
    let text = "POST / HTTP/1.1\nHost: HOST\nContent-Length: 3\nTransfer-Encoding: chunked\n\n\
                2\nhi\n0\n\nGET /smuggled HTTP/1.1\nHost: HOST\n\n";
    let mut client = stage.client(text).await;
    let mut sandbox = stage.sandbox().await;
    assert!(!sandbox.head().await.contains("content-length"));
    sandbox.until("2\nhi\n0\n\n").await;
    sandbox.send(OK).await;
    // The connection ends here, so what follows is nobody's request.
    assert!(client.rest().await.ends_with("ok"));
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox
        .send("HTTP/1.1 200 OK\nContent-Type: text/event-stream\nTransfer-Encoding: chunked\n\n")
        .await;
    client.head().await;
    for event in ["data: 1", "data: 2", "data: 3"] {
        sandbox.send(&format!("7\n{event}\n")).await;
        // The next event is sent only when this one has come through.
        client.until(event).await;
    }
    sandbox.send("0\n\n").await;
    client.until("0\n\n").await;
}

const UPGRADE: &str = "GET /ws HTTP/1.1\nHost: HOST\nConnection: keep-alive, Upgrade\nUpgrade: websocket\n\
                       Sec-WebSocket-Key: k\nSec-WebSocket-Protocol: p\n\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n\
                      Sec-WebSocket-Accept: a\nSec-WebSocket-Protocol: p\n\n";

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let stage = Stage::new().await;
    let mut client = stage.client(UPGRADE).await;
    let mut sandbox = stage.sandbox().await;
    let head = sandbox.head().await;
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key: k",
    ] {
        assert!(head.contains(line), "{head}");
    }
    // What follows the head at once belongs to the tunnel already.
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
async fn a_refused_upgrade_is_passed_on() {
    let stage = Stage::new().await;
    let mut client = stage.client(UPGRADE).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox
        .send("HTTP/1.1 403 Forbidden\nContent-Length: 2\n\nno")
        .await;
    assert!(client.head().await.starts_with("http/1.1 403"));
    client.until("no").await;
}

#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_an_error() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(SWITCH).await;
    assert!(client.head().await.starts_with("http/1.1 502"));
}

#[tokio::test]
async fn a_client_that_leaves_is_missed_by_the_sandbox() {
    let stage = Stage::new().await;
    // Before the answer begins.
    let client = stage.client("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    // In the midst of it.
    let mut client = stage.client("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    client.until("hi").await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
    // In a tunnel.
    let mut client = stage.client(UPGRADE).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(SWITCH).await;
    client.head().await;
    drop(client);
    assert_eq!(sandbox.rest().await, "");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_completed() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    client.until("hi").await;
    drop(sandbox);
    assert!(!client.rest().await.contains('0'));
    // Before it begins.
    let mut client = stage
        .client("POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n")
        .await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    drop(sandbox);
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.ends_with(r#"{"detail":"connection to the sandbox broke"}"#),
        "{answer}"
    );
}

#[tokio::test]
async fn what_is_open_to_a_pod_ends_with_it() {
    let stage = Stage::new().await;
    let mut asking = stage
        .client("POST / HTTP/1.1\nHost: HOST\nConnection: close\n\n")
        .await;
    let mut held = stage.sandbox().await;
    held.head().await;
    let mut reading = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut writing = stage.sandbox().await;
    writing.head().await;
    writing
        .send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n")
        .await;
    reading.until("hi").await;
    let mut tunnel = stage.client(UPGRADE).await;
    let mut far = stage.sandbox().await;
    far.head().await;
    far.send(SWITCH).await;
    tunnel.head().await;

    stage.world.report(&stage.id, &starting(true));
    let answer = asking.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(!reading.rest().await.contains('0'));
    assert_eq!(tunnel.rest().await, "");
    assert_eq!(far.rest().await, "");
}

#[tokio::test]
async fn a_request_waits_for_a_sandbox_that_comes_back() {
    let stage = Stage::new().await;
    stage.world.report(&stage.id, &starting(true));
    let text = "POST /execute_action HTTP/1.1\nHost: HOST\nContent-Length: 4\n\nbody";
    let mut client = stage.client(text).await;
    stage.world.report(&stage.id, &ready("127.0.0.1"));
    let mut sandbox = stage.sandbox().await;
    sandbox.until("\n\nbody").await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn a_request_follows_a_sandbox_that_has_moved() {
    let stage = Stage::new().await;
    // Nobody listens there: the Pod is gone, and the index does not know yet.
    stage.world.report(&stage.id, &ready("127.0.0.99"));
    let text = "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n";
    let mut client = stage.client(text).await;
    stage.world.report(&stage.id, &starting(true));
    stage.world.report(&stage.id, &ready("127.0.0.1"));
    let mut sandbox = stage.sandbox().await;
    sandbox.until("4\nbody\n0\n\n").await;
    sandbox.send(OK).await;
    client.until("ok").await;
}

#[tokio::test]
async fn a_shutdown_ends_idle_connections_and_cuts_tunnels() {
    let stage = Stage::new().await;
    let mut tunnel = stage.client(UPGRADE).await;
    let mut far = stage.sandbox().await;
    far.head().await;
    far.send(SWITCH).await;
    tunnel.head().await;
    let mut idle = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(OK).await;
    idle.until("ok").await;
    stage.shutdown.cancel();
    stage.served.await.unwrap();
    assert_eq!(idle.rest().await, "");
    assert_eq!(tunnel.rest().await, "");
}

/// A piece of a large body.
const PIECE: usize = 1 << 20;
const PIECES: usize = 256;

#[tokio::test]
async fn a_large_upload_is_streamed() {
    let stage = Stage::new().await;
    let before = peak_kib();
    let head = "POST /upload HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n";
    let mut client = stage.client(head).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    let send = async {
        for _ in 0..PIECES {
            client.send_raw(format!("{PIECE:x}\r\n").as_bytes()).await;
            client.send_raw(&vec![b'x'; PIECE]).await;
            client.send_raw(b"\r\n").await;
        }
        client.send("0\n\n").await;
        client
    };
    let receive = async {
        assert!(sandbox.skip_chunks().await > PIECE * PIECES);
        sandbox.send(OK).await;
    };
    let (mut client, ()) = tokio::join!(send, receive);
    client.until("ok").await;
    let grown = peak_kib() - before;
    assert!(grown < 48 * 1024, "memory grew by {grown} KiB");
}

#[tokio::test]
async fn a_slow_reader_slows_the_writer() {
    let stage = Stage::new().await;
    let mut client = stage.client("GET / HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send("HTTP/1.1 200 OK\nConnection: close\n\n").await;
    client.head().await;
    // The client reads nothing, so writing comes to a stop after what sockets buffer.
    let piece = vec![b'x'; PIECE];
    let mut sent = 0;
    while sandbox.send_within_a_moment(&piece).await {
        sent += PIECE;
        assert!(sent < 64 << 20, "nobody stops the sandbox");
    }
    drop(client);
    sandbox.rest().await;
}

/// Most memory that this process has had resident.
#[cfg(test)]
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_head_may_not_take_long_and_idleness_may() {
    let stage = Stage::new().await;
    let start = Instant::now();
    let mut slow = stage.client("GET / HTTP/1.1\nHost:").await;
    slow.rest().await;
    assert!((10..11).contains(&start.elapsed().as_secs()));

    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut idle = stage.client(text).await;
    idle.until("}").await;
    let start = Instant::now();
    idle.rest().await;
    assert!((75..120).contains(&start.elapsed().as_secs()));

    let mut kept = stage.client(text).await;
    for _ in 0..5 {
        kept.until("}").await;
        tokio::time::advance(Duration::from_secs(70)).await;
        kept.send(text).await;
    }
    kept.until("}").await;
}
