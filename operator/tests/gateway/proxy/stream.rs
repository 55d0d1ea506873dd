//! Large bodies, streams and silence: memory stays constant, and silence closes nothing.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::time;

use crate::support::gateway_fixture::{config, key, ready};
use crate::support::socket_fixture::{OK, RawConnection, SocketFixture};

const SSE: &str =
    "HTTP/1.1 200 OK\nContent-Type: text/event-stream\nTransfer-Encoding: chunked\n\n";

const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that sockets and buffers may take before a writer has to wait.
const MAX_BUFFERED_BYTES: usize = 32 << 20;

/// A chunk of a chunked body.
fn chunk() -> Vec<u8> {
    let size = format!("{CHUNK_BYTES:x}\r\n");
    [size.as_bytes(), &vec![b'x'; CHUNK_BYTES], b"\r\n"].concat()
}

/// Writes until the other end has taken no bytes for a moment.
async fn fill(writer: &mut RawConnection) {
    let (chunk, mut sent) = (chunk(), 0);
    while writer.send_within_a_moment(&chunk).await {
        sent += chunk.len();
        assert!(sent < MAX_BUFFERED_BYTES, "the writer is not slowed down");
    }
}

#[tokio::test]
async fn large_upload_is_streamed() {
    let fixture = SocketFixture::new().await;
    let head = "POST /upload HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n";
    let (mut client, mut sandbox, _) = fixture.open(head).await;
    let send = async {
        for _ in 0..2 * MAX_BUFFERED_BYTES / CHUNK_BYTES {
            client.send_raw(&chunk()).await;
        }
        client.send("0\n\n").await;
    };
    let receive = async {
        assert!(sandbox.skip_chunks().await > 2 * MAX_BUFFERED_BYTES);
        sandbox.send(OK).await;
    };
    tokio::join!(send, receive);
    client.until("ok").await;
}

#[tokio::test]
async fn slow_reader_slows_the_writer() {
    let fixture = SocketFixture::new().await;
    let head = "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked\n\n";
    let (mut client, mut sandbox, _) = fixture.open(head).await;
    fill(&mut client).await;
    let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
    sandbox.send(head).await;
    client.head().await;
    fill(&mut sandbox).await;
}

/// Status of an HTTP/2 request that the API rejects while its body is open.
async fn rejection(client: &h2::client::SendRequest<Bytes>) -> StatusCode {
    let mut client = client.clone().ready().await.unwrap();
    let request = Request::post("http://gateway/nothing").body(()).unwrap();
    let (answer, _upload) = client.send_request(request, false).unwrap();
    answer.await.unwrap().status()
}

/// Two windows of uploads and one connection leave less than a window of 1 MiB.
#[tokio::test]
async fn http_2_upload_is_charged_until_its_response_ends() {
    let mut config = config();
    config.client_memory_mib = 1;
    let fixture = SocketFixture::with(config).await;
    let mut client = fixture.http2().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let request = Request::post("/upload");
        let (answer, upload) = fixture.http2_send(&mut client, request, false).await;
        let mut sandbox = fixture.sandbox().await;
        sandbox.head().await;
        sandbox.send(SSE).await;
        open.push((answer.await.unwrap(), upload, sandbox));
    }
    assert_eq!(rejection(&client).await, 503);
    drop(open);
    let released = async {
        while rejection(&client).await != 404 {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(Duration::from_mins(1), released)
        .await
        .unwrap();
}

/// Lets time pass, on a clock that otherwise runs.
async fn advance(time: Duration) {
    time::pause();
    time::advance(time).await;
    time::resume();
}

#[tokio::test]
async fn silent_requests_and_tunnels_stay_open() {
    let fixture = SocketFixture::new().await;
    let (mut pending, mut pending_far, _) =
        fixture.open("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let (mut reading, mut writing, _) = fixture.open("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
    writing.send(&format!("{SSE}2\nhi\n")).await;
    reading.until("hi\n").await;
    let text = "POST /upload HTTP/1.1\nHost: HOST\nContent-Length: 4\n\nbo";
    let mut sending = fixture.client(text).await;
    let mut receiving = fixture.sandbox().await;
    receiving.until("\n\nbo").await;
    let (mut near, mut far) = fixture.tunnel().await;
    advance(Duration::from_hours(9)).await;
    pending_far.send(OK).await;
    pending.until("ok").await;
    writing.send("2\nho\n0\n\n").await;
    reading.until("ho\n0\n\n").await;
    sending.send("dy").await;
    receiving.until("dy").await;
    receiving.send(OK).await;
    sending.until("ok").await;
    near.send("ping").await;
    far.until("ping").await;
    far.send("pong").await;
    near.until("pong").await;
}

#[tokio::test]
async fn silent_http_2_stream_stays_open_while_client_answers_pings() {
    let fixture = SocketFixture::new().await;
    let mut client = fixture.http2().await;
    let (answer, _) = fixture
        .http2_send(&mut client, Request::get("/slow"), true)
        .await;
    let mut sandbox = fixture.sandbox().await;
    sandbox.head().await;
    for _ in 0..60 {
        advance(Duration::from_secs(15)).await;
        // A round trip, during which pings are answered too.
        let other = Request::get("http://gateway/nothing").body(()).unwrap();
        client = client.ready().await.unwrap();
        let (other, _) = client.send_request(other, true).unwrap();
        assert_eq!(other.await.unwrap().status(), 404);
    }
    sandbox.send(OK).await;
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn events_arrive_one_by_one_by_http_2() {
    let fixture = SocketFixture::new().await;
    let (answer, _, mut sandbox) = fixture.http2_get("/sse").await;
    sandbox.send(SSE).await;
    let mut body = answer.await.unwrap().into_body();
    for event in ["data: 1", "data: 2", "data: 3"] {
        sandbox.send(&format!("7\n{event}\n")).await;
        // The next event is sent only after this one has arrived.
        assert_eq!(body.data().await.unwrap().unwrap(), event);
    }
    sandbox.send("0\n\n").await;
    while let Some(end) = body.data().await {
        assert_eq!(end.unwrap(), "");
    }
}

#[tokio::test]
async fn upstream_connection_closes_when_http_2_stream_is_reset() {
    let fixture = SocketFixture::new().await;
    for answered in [false, true] {
        let (answer, mut sent, mut sandbox) = fixture.http2_get("/slow").await;
        if answered {
            sandbox.send(SSE).await;
            answer.await.unwrap();
        }
        sent.send_reset(h2::Reason::CANCEL);
        assert_eq!(sandbox.rest().await, "");
    }
}

#[tokio::test]
async fn truncated_response_resets_http_2_stream() {
    let fixture = SocketFixture::new().await;
    let (answer, _, mut sandbox) = fixture.http2_get("/").await;
    sandbox.send(&format!("{SSE}2\nhi\n")).await;
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "hi");
    drop(sandbox);
    assert!(body.data().await.unwrap().is_err());
}

const TUNNEL_COUNT: usize = 100;

#[tokio::test]
async fn shutdown_drains_tunnels_and_streams() {
    let mut config = config();
    config.drain_limit = Duration::from_mins(10);
    let fixture = SocketFixture::with(config).await;
    let (mut tunnels, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..TUNNEL_COUNT {
        tunnels.push(fixture.tunnel().await);
        let (near, mut far, _) = fixture.open("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
        far.send(SSE).await;
        streams.push((near, far));
    }
    let metrics = fixture.base.gateway.metrics().clone();
    assert_eq!(metrics.tunnels.get(), i64::try_from(TUNNEL_COUNT).unwrap());
    fixture.shutdown.cancel();
    // All continue.
    for (near, far) in &mut tunnels {
        near.send("ping").await;
        far.until("ping").await;
    }
    for (near, far) in &mut streams {
        far.send("2\nhi\n").await;
        near.until("2\nhi\n").await;
    }
    assert!(TcpStream::connect(fixture.address).await.is_err());
    assert!(!fixture.served.is_finished());
    // They end normally.
    for (near, mut far) in tunnels {
        drop(near);
        assert_eq!(far.rest().await, "");
    }
    for (mut near, mut far) in streams {
        far.send("0\n\n").await;
        assert!(near.rest().await.ends_with("0\n\n"));
    }
    fixture.served.await.unwrap();
    assert_eq!((metrics.tunnels.get(), metrics.connections.get()), (0, 0));
}

#[tokio::test]
async fn new_clients_are_served_during_drain_delay() {
    let mut config = config();
    config.drain_delay = Duration::from_mins(10);
    let fixture = SocketFixture::with(config).await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut early = fixture.client(text).await;
    early.until("}").await;
    fixture.shutdown.cancel();
    let mut late = fixture.client(text).await;
    late.until("}").await;
    early.send(text).await;
    early.until("}").await;
    let (near, mut far) = fixture.tunnel().await;
    assert!(!fixture.served.is_finished());
    advance(Duration::from_mins(10)).await;
    // New connections are rejected, and idle ones close.
    assert_eq!((early.rest().await, late.rest().await), Default::default());
    drop(near);
    far.rest().await;
    fixture.served.await.unwrap();
    assert!(TcpStream::connect(fixture.address).await.is_err());
}

/// Number of sandboxes, each at its own address, and of concurrent calls.
const SANDBOXES: usize = 10_000;
const BATCH: usize = 100;

#[tokio::test]
async fn idle_upstream_connections_close_across_many_sandboxes() {
    let fixture = SocketFixture::new().await;
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = everywhere.accept().await {
            let mut far = RawConnection::new(stream);
            tokio::spawn(async move {
                far.head().await;
                far.send(OK).await;
                far.rest().await;
            });
        }
    });
    let open = &fixture.base.gateway.metrics().upstream_connections;
    let mut most = 0;
    for batch in 0..SANDBOXES / BATCH {
        let calls = (batch * BATCH..(batch + 1) * BATCH).map(|n| call(&fixture, port, n));
        join_all(calls).await;
        most = most.max(open.get());
        advance(Duration::from_secs(5)).await;
    }
    assert!(most <= i64::try_from(BATCH * 3).unwrap(), "{most} open");
    // All of them close when idle.
    time::pause();
    while open.get() > 0 {
        time::advance(Duration::from_secs(1)).await;
    }
}

async fn call(fixture: &SocketFixture, port: u16, n: usize) {
    let base = &fixture.base;
    let status = ready(&format!("127.1.{}.{}", n / 250, n % 250 + 1));
    let name = base.add_session(&format!("n{n}"), port, &status);
    let text = format!("GET / HTTP/1.1\nHost: {name}.rt.example.com\nConnection: close\n\n");
    let answer = fixture.exchange(&text).await;
    assert!(answer.ends_with("ok"), "{answer}");
    // A sandbox that is gone from the index is forgotten by the proxy.
    let uid = base.stored(&name).metadata.uid.unwrap();
    if n.is_multiple_of(2) {
        base.index.remove(&key(&name), &uid);
    }
}
