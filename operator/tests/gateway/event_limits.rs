//! Ends and limits of event streams, some on real sockets.

use std::time::Duration;

use bytes::Bytes;
use crds::sandbox::{PodStatus, SandboxStatus};
use operator::tenants::Tenants;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use testing::FakeApi;

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, limited, ready, starting,
};
use crate::support::socket_fixture::SocketFixture;

const REQUEST: &str = "GET /events HTTP/1.1\nHost: gateway\nX-API-Key: tenant-key\n\n";
/// Changes until a client that reads nothing must have lost its connection: buffers of the kernel
/// take some megabytes.
const MAX_CHANGES: u32 = 20_000;

/// A status with a long message.
fn verbose(number: u32) -> SandboxStatus {
    SandboxStatus {
        message: Some(format!("{number} {}", "x".repeat(20_000))),
        ..starting(false)
    }
}

#[tokio::test(start_paused = true)]
async fn bad_requests_for_a_stream_are_rejected() {
    let fixture = GatewayFixture::new();
    for (query, expected) in [
        ("?runtime_id=abcdefghijklmnop", 404),
        ("?runtime_id=%00", 404),
        ("?after=1-0&after=1-0", 400),
    ] {
        assert_eq!(
            fixture.rejection_of_events(query).await.0,
            expected,
            "{query}"
        );
    }
    assert_eq!(fixture.call_as("wrong", "GET", "/events", "").await.0, 401);
    assert_eq!(fixture.call_as(KEY, "POST", "/events", "").await.0, 405);
}

#[tokio::test(start_paused = true)]
async fn streams_of_a_key_are_limited_and_counted() {
    let fixture = limited(&json!({"callsPerSecond": 0}));
    let mut open = Vec::new();
    for _ in 0..256 {
        open.push(fixture.events().await);
    }
    let metrics = fixture.gateway.metrics().clone();
    assert_eq!(metrics.event_streams.get(), 256);
    let (code, detail) = fixture.rejection_of_events("").await;
    assert!(
        code == 429 && detail.contains("256 event streams"),
        "{code} {detail}"
    );
    fixture.events_as(OTHER_KEY, "", None).await;
    open.pop();
    fixture.events().await;
    drop(open);
    assert_eq!(metrics.event_streams.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn begin_of_a_stream_counts_as_a_call() {
    let fixture = limited(&json!({"callsPerSecond": 1}));
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        fixture.events().await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_its_key_is_revoked() {
    let tenants = Tenants::pending();
    let hash = ring::digest::digest(&ring::digest::SHA256, KEY.as_bytes());
    let record =
        json!({"name": "default", "sha256": data_encoding::HEXLOWER.encode(hash.as_ref())});
    let load =
        |records: serde_json::Value| tenants.replace(records.to_string().as_bytes()).unwrap();
    load(json!([record]));
    let fixture = GatewayFixture::synced(&FakeApi::default(), config(), tenants.clone());
    let mut events = fixture.synced_events().await;
    load(json!([record, {"name": "new", "sha256": "ab".repeat(32)}]));
    events.assert_quiet_for(Duration::from_mins(1)).await;
    // A key that goes to another tenant ends the stream too.
    let mut moved = record.clone();
    moved["name"] = json!("another");
    load(json!([moved]));
    events.assert_ends().await;
    load(json!([record]));
    let mut events = fixture.synced_events().await;
    load(json!([]));
    events.assert_ends().await;
    assert_eq!(fixture.gateway.metrics().event_streams.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn stream_that_falls_behind_ends_and_others_do_not() {
    let fixture = GatewayFixture::new();
    let id = fixture.add(60000, &starting(false));
    let (mut slow, mut other) = (fixture.synced_events().await, fixture.synced_events().await);
    let cursor = slow.cursor.clone().unwrap();
    for number in 0..300 {
        fixture.deliver(&id, &verbose(number));
        other.expect().await;
    }
    slow.assert_ends().await;
    let metrics = fixture.gateway.metrics();
    assert_eq!(
        (
            metrics.event_streams_dropped.get(),
            metrics.event_streams.get()
        ),
        (1, 1)
    );
    // It continues with the last state.
    let mut slow = fixture.events_after(&cursor).await;
    assert_eq!(slow.until("resumed").await.len(), 2);
    fixture.deliver(&id, &failed(PodStatus::Failed));
    assert_eq!(other.expect().await.data["status"], "error");
}

/// Waits for a stream, and changes the sandbox until it has ended.
async fn change_until_stream_is_dropped(fixture: &SocketFixture) {
    let metrics = fixture.base.gateway.metrics().clone();
    while metrics.event_streams.get() == 0 {
        tokio::task::yield_now().await;
    }
    let mut changes = 0;
    while metrics.event_streams.get() > 0 {
        assert!(changes < MAX_CHANGES, "the stream is open");
        fixture.base.deliver(&fixture.id, &verbose(changes));
        changes += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(metrics.event_streams_dropped.get(), 1);
}

#[tokio::test]
async fn connection_of_a_client_that_reads_nothing_is_closed() {
    let fixture = SocketFixture::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(fixture.address).await.unwrap();
    client
        .write_all(REQUEST.replace('\n', "\r\n").as_bytes())
        .await
        .unwrap();
    change_until_stream_is_dropped(&fixture).await;
    let mut rest = Vec::new();
    // Closed or reset, after the bytes that were on their way.
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn stream_ends_when_the_replica_drains() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.client(REQUEST).await;
    let head = client.head().await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("x-accel-buffering: no"), "{head}");
    client.until("event: synced").await;
    fixture.shutdown.cancel();
    let rest = client.rest().await;
    assert!(rest.ends_with("\n0\n\n"), "a complete body: {rest}");
    fixture.served.await.unwrap();
    let metrics = fixture.base.gateway.metrics();
    assert_eq!(metrics.requests("api", "ok"), 1);
}

/// Requests for a stream over HTTP/2.
fn http2_request() -> http::Request<()> {
    let request = http::Request::get("http://gateway/events").header("x-api-key", KEY);
    request.body(()).unwrap()
}

/// The client has no window, or that of the protocol, and reads nothing.
#[tokio::test]
async fn http_2_stream_of_a_client_that_reads_nothing_is_reset() {
    for window in [0, 65_535] {
        let fixture = SocketFixture::new().await;
        let socket = TcpStream::connect(fixture.address).await.unwrap();
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(window)
            .handshake::<_, Bytes>(socket)
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let (answer, _) = client.send_request(http2_request(), true).unwrap();
        let mut events = answer.await.unwrap().into_body();
        change_until_stream_is_dropped(&fixture).await;
        let reset = loop {
            // Bytes that were on their way, for which the client gives no window.
            if let Err(reset) = events.data().await.expect("no end of the body") {
                break reset;
            }
        };
        assert_eq!(reset.reason(), Some(h2::Reason::CANCEL), "{window}");
        // The connection goes on.
        let mut client = client.ready().await.unwrap();
        let (answer, _) = client.send_request(http2_request(), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200, "{window}");
    }
}

#[tokio::test]
async fn streams_work_over_http_2() {
    let fixture = SocketFixture::new().await;
    let client = fixture.http2().await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut client = client.clone().ready().await.unwrap();
        let (answer, _) = client.send_request(http2_request(), true).unwrap();
        streams.push(answer.await.unwrap().into_body());
    }
    fixture.base.deliver(&fixture.id, &ready("127.0.0.2"));
    for stream in &mut streams {
        let mut text = String::new();
        while !text.contains("\"change\":\"changed\"") {
            let part: Bytes = stream.data().await.unwrap().unwrap();
            let _ = stream.flow_control().release_capacity(part.len());
            text += std::str::from_utf8(&part).unwrap();
        }
        assert!(text.contains("event: synced"), "{text}");
    }
}
