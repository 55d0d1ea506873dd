//! Bodies, streams and silence: what is long passes at constant memory, and nobody is cut off for
//! saying nothing.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, poll_fn};
use http::Request;
use operator::gateway::serve::Limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::time;

use support::stage::{LIMITS, OK, Stage, Wire};
use support::world::{config, ready, sandbox};

const SSE: &str =
    "HTTP/1.1 200 OK\nContent-Type: text/event-stream\nTransfer-Encoding: chunked\n\n";
const UPGRADE: &str = "GET /ws HTTP/1.1\nHost: HOST\nConnection: Upgrade\nUpgrade: websocket\n\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n\n";

const PIECE: usize = 1 << 20;
const PIECES: usize = 256;

#[tokio::test]
async fn a_large_download_is_streamed() {
    let stage = Stage::new().await;
    let before = peak_kib();
    let mut client = stage.client("GET /large HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    let length = PIECE * PIECES;
    let send = async {
        let head = format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n");
        sandbox.send(&head).await;
        let piece = vec![b'x'; PIECE];
        for _ in 0..PIECES {
            sandbox.send_raw(&piece).await;
        }
    };
    let receive = async {
        client.head().await;
        client.skip(length).await;
    };
    tokio::join!(send, receive);
    let grown = peak_kib() - before;
    assert!(grown < 48 * 1024, "memory grew by {grown} KiB");
}

#[tokio::test]
async fn a_large_upload_by_http_2_is_streamed() {
    let stage = Stage::new().await;
    let before = peak_kib();
    let mut client = stage.http2().await;
    let uri = format!("http://{}/upload", stage.host());
    let request = Request::post(uri).body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    let send = async {
        let piece = Bytes::from(vec![b'x'; PIECE]);
        for _ in 0..PIECES {
            let mut rest = piece.clone();
            while !rest.is_empty() {
                body.reserve_capacity(rest.len());
                let room = poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
                let part = rest.split_to(room.min(rest.len()));
                body.send_data(part, false).unwrap();
            }
        }
        body.send_data(Bytes::new(), true).unwrap();
    };
    let receive = async {
        assert!(sandbox.skip_chunks().await > PIECE * PIECES);
        sandbox.send(OK).await;
    };
    tokio::join!(send, receive);
    assert_eq!(answer.await.unwrap().status(), 200);
    let grown = peak_kib() - before;
    assert!(grown < 48 * 1024, "memory grew by {grown} KiB");
}

/// Most memory that this process has had resident.
#[cfg(test)]
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// So many hours pass while everybody is silent.
#[cfg(test)]
async fn silence() {
    time::pause();
    time::advance(Duration::from_hours(9)).await;
    time::resume();
}

#[tokio::test]
async fn hours_of_silence_end_nothing() {
    let stage = Stage::new().await;
    let mut asking = stage.client("GET /slow HTTP/1.1\nHost: HOST\n\n").await;
    let mut asked = stage.sandbox().await;
    asked.head().await;
    let mut reading = stage.client("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
    let mut writing = stage.sandbox().await;
    writing.head().await;
    writing.send(&format!("{SSE}2\nhi\n")).await;
    reading.until("hi\n").await;
    let text = "POST /upload HTTP/1.1\nHost: HOST\nContent-Length: 4\n\nbo";
    let mut sending = stage.client(text).await;
    let mut receiving = stage.sandbox().await;
    receiving.until("\n\nbo").await;
    let (mut near, mut far) = tunnel(&stage).await;
    silence().await;
    asked.send(OK).await;
    asking.until("ok").await;
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

#[cfg(test)]
async fn tunnel(stage: &Stage) -> (Wire, Wire) {
    let mut near = stage.client(UPGRADE).await;
    let mut far = stage.sandbox().await;
    far.head().await;
    far.send(SWITCH).await;
    near.head().await;
    (near, far)
}

#[tokio::test]
async fn an_http_2_stream_may_be_silent_while_its_client_lives() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let uri = format!("http://{}/slow", stage.host());
    let request = Request::get(uri).body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    for _ in 0..60 {
        time::pause();
        time::advance(Duration::from_secs(15)).await;
        time::resume();
        // A round trip, in which pings are answered as well.
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
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let uri = format!("http://{}/sse", stage.host());
    let request = Request::get(uri).body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(SSE).await;
    let mut body = answer.await.unwrap().into_body();
    for event in ["data: 1", "data: 2", "data: 3"] {
        sandbox.send(&format!("7\n{event}\n")).await;
        // The next event is sent only when this one has come through.
        assert_eq!(body.data().await.unwrap().unwrap(), event);
    }
    sandbox.send("0\n\n").await;
    while let Some(end) = body.data().await {
        assert_eq!(end.unwrap(), "");
    }
}

#[tokio::test]
async fn an_http_2_client_that_resets_is_missed_by_the_sandbox() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    for answered in [false, true] {
        let uri = format!("http://{}/slow", stage.host());
        let request = Request::get(uri).body(()).unwrap();
        let (answer, mut sent) = client.send_request(request, true).unwrap();
        let mut sandbox = stage.sandbox().await;
        sandbox.head().await;
        if answered {
            sandbox.send(SSE).await;
            answer.await.unwrap();
        }
        sent.send_reset(h2::Reason::CANCEL);
        assert_eq!(sandbox.rest().await, "");
        client = client.ready().await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_resets_its_http_2_stream() {
    let stage = Stage::new().await;
    let mut client = stage.http2().await;
    let uri = format!("http://{}/", stage.host());
    let request = Request::get(uri).body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(&format!("{SSE}2\nhi\n")).await;
    let mut body = answer.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "hi");
    drop(sandbox);
    assert!(body.data().await.unwrap().is_err());
}

const MANY: usize = 100;

#[tokio::test]
async fn a_shutdown_lets_tunnels_and_streams_end() {
    let limits = Limits {
        drain: Duration::from_mins(10),
        ..LIMITS
    };
    let stage = Stage::with(config(), limits).await;
    let (mut tunnels, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..MANY {
        tunnels.push(tunnel(&stage).await);
        let near = stage.client("GET /sse HTTP/1.1\nHost: HOST\n\n").await;
        let mut far = stage.sandbox().await;
        far.head().await;
        far.send(SSE).await;
        streams.push((near, far));
    }
    let metrics = stage.world.gateway.metrics().clone();
    assert_eq!(metrics.tunnels.get(), i64::try_from(MANY).unwrap());
    stage.shutdown.cancel();
    // Every one goes on as before.
    for (near, far) in &mut tunnels {
        near.send("ping").await;
        far.until("ping").await;
    }
    for (near, far) in &mut streams {
        far.send("2\nhi\n").await;
        near.until("2\nhi\n").await;
    }
    assert!(TcpStream::connect(stage.address).await.is_err());
    assert!(!stage.served.is_finished());
    // And they end by themselves, without anything cut off.
    for (near, mut far) in tunnels {
        drop(near);
        assert_eq!(far.rest().await, "");
    }
    for (mut near, mut far) in streams {
        far.send("0\n\n").await;
        assert!(near.rest().await.ends_with("0\n\n"));
    }
    stage.served.await.unwrap();
    assert_eq!((metrics.tunnels.get(), metrics.connections.get()), (0, 0));
}

#[tokio::test]
async fn new_clients_are_served_until_everybody_has_heard_of_the_shutdown() {
    let limits = Limits {
        delay: Duration::from_mins(10),
        ..LIMITS
    };
    let stage = Stage::with(config(), limits).await;
    let text = "GET /nothing HTTP/1.1\nHost: gateway\n\n";
    let mut early = stage.client(text).await;
    early.until("}").await;
    stage.shutdown.cancel();
    let mut late = stage.client(text).await;
    late.until("}").await;
    early.send(text).await;
    early.until("}").await;
    let (near, mut far) = tunnel(&stage).await;
    assert!(!stage.served.is_finished());
    time::pause();
    time::advance(Duration::from_mins(10)).await;
    time::resume();
    // Now nobody comes in, and what is idle ends.
    assert_eq!((early.rest().await, late.rest().await), Default::default());
    drop(near);
    far.rest().await;
    stage.served.await.unwrap();
    assert!(TcpStream::connect(stage.address).await.is_err());
}

/// Sandboxes, all at addresses of their own, and how many of them are called at a time.
const SANDBOXES: usize = 10_000;
const BATCH: usize = 100;

#[tokio::test]
async fn many_sandboxes_do_not_leave_many_connections() {
    let stage = Stage::new().await;
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = everywhere.accept().await {
            let mut far = Wire::new(stream);
            tokio::spawn(async move {
                far.head().await;
                far.send(OK).await;
                far.rest().await;
            });
        }
    });
    let open = &stage.world.gateway.metrics().upstream_connections;
    let mut most = 0;
    for batch in 0..SANDBOXES / BATCH {
        let calls = (batch * BATCH..(batch + 1) * BATCH).map(|n| call(&stage, port, n));
        join_all(calls).await;
        most = most.max(open.get());
        time::pause();
        time::advance(Duration::from_secs(5)).await;
        time::resume();
    }
    assert!(most <= i64::try_from(BATCH * 3).unwrap(), "{most} open");
    // All of them end by idleness, the last ones too.
    time::pause();
    while open.get() > 0 {
        time::advance(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
async fn call(stage: &Stage, port: u16, n: usize) {
    let world = &stage.world;
    let mut made = sandbox(&world.keys, port);
    let name = world
        .keys
        .session_runtime_id("sandboxes", "default", &format!("n{n}"), 0);
    made.metadata.name = Some(name.clone());
    made.spec.session.as_mut().unwrap().id = format!("n{n}");
    world.index.apply(&world.api.put(&made)).unwrap();
    world.report(&name, &ready(&format!("127.1.{}.{}", n / 250, n % 250 + 1)));
    let text = format!("GET / HTTP/1.1\nHost: {name}.rt.example.com\nConnection: close\n\n");
    let answer = stage.exchange(&text).await;
    assert!(answer.ends_with("ok"), "{answer}");
    // What is gone from the index is forgotten here too.
    let uid = world.api.get(&name).metadata.uid.unwrap();
    let key = operator::index::Key {
        namespace: "sandboxes".into(),
        name,
    };
    if n.is_multiple_of(2) {
        world.index.remove(&key, &uid);
    }
}
