//! Event streams and web sockets that stay open, talking or silent, over either version of HTTP. They
//! alone keep their sandboxes awake: the servers behind say that they have been idle for ever.

use std::time::Duration;

use futures::{SinkExt as _, Stream, StreamExt as _};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Scale;
use crate::blackbox::sse;
use crate::fixture::{Fixture, text, fixture};

/// Between two events of a stream that talks.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Additional time for a slow machine.
const SPARE: Duration = Duration::from_mins(2);
/// One whose streams talk, and those with a silent stream of either version of HTTP and a silent socket.
const SESSIONS: [&str; 4] = ["talking", "silent", "silent-too", "quiet"];

async fn events(
    info: &Value,
    pause: Duration,
    http2: bool,
) -> impl Stream<Item = Bytes> + Unpin + use<> {
    let path = format!("api/events/sse?pause={}", pause.as_millis());
    let url = format!("{}/{path}", text(info, "url"));
    let events = sse::open(&url, &text(info, "session_api_key"), http2).await;
    events.map(|event| event.unwrap())
}

/// A WebSocket of the sandbox that echoes.
async fn socket(info: &Value) -> WebSocketStream<TcpStream> {
    let url = text(info, "url").replacen("http://", "ws://", 1);
    let port = url.rsplit_once(':').unwrap().1;
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await;
    let (mut socket, _) = client_async(format!("{url}/sockets/events/1"), stream.unwrap())
        .await
        .unwrap();
    let auth = json!({"session_api_key": text(info, "session_api_key")});
    socket.send(Message::text(auth.to_string())).await.unwrap();
    let ready = socket.next().await.unwrap().unwrap();
    assert_eq!(ready, Message::text(r#"{"kind":"ready"}"#));
    socket
}

async fn echoes(socket: &mut WebSocketStream<TcpStream>, message: Message) {
    socket.send(message.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), message);
}

/// Reads so many events, each as it is sent, and has a message echoed after each.
async fn talk(
    mut events: impl Stream<Item = Bytes> + Unpin,
    mut socket: WebSocketStream<TcpStream>,
    count: u128,
) {
    for number in 0..count {
        let event = timeout(Duration::from_mins(1), events.next()).await;
        assert_eq!(event.unwrap().unwrap(), format!("data: {number}\n\n"));
        echoes(&mut socket, Message::text(number.to_string())).await;
    }
}

#[tokio::test]
async fn item_11_streams_and_sockets_stay_open() {
    let scale = Scale::of_this_run();
    let idle = format!("{}s", scale.idle.as_secs());
    let args = ["--url-form", "nested", "--idle-timeout", &idle];
    let Some(fixture) = Fixture::set_with("black-box item 11", &args) else {
        return;
    };
    // Each kind of silence has a sandbox that nothing else keeps awake.
    let mut infos = Vec::new();
    for session in SESSIONS {
        let environment = json!({"environment": {"IDLE_TIME": "1000000"}});
        fixture.start(session, &environment).await;
        infos.push(fixture.ready(session).await);
    }
    let [talking, silent, silent_too, quiet] = infos.try_into().unwrap();
    let mut silent = events(&silent, scale.open, false).await;
    let mut silent_too = events(&silent_too, scale.open, true).await;
    let mut quiet = socket(&quiet).await;
    let count = scale.open.as_millis() / EVENT_INTERVAL.as_millis();
    let first = talk(
        events(&talking, EVENT_INTERVAL, false).await,
        socket(&talking).await,
        count,
    );
    let second = talk(
        events(&talking, EVENT_INTERVAL, true).await,
        socket(&talking).await,
        count,
    );
    let all = futures::future::join4(silent.next(), silent_too.next(), first, second);
    let (event, event_too, (), ()) = timeout(scale.open * 2 + SPARE, all).await.unwrap();
    assert_eq!(event.unwrap(), "data: 0\n\n");
    assert_eq!(event_too.unwrap(), "data: 0\n\n");
    // Nothing has passed through this one for all that time.
    echoes(&mut quiet, Message::binary(vec![7; 70_000])).await;
    for session in &SESSIONS[1..] {
        let now = fixture.session(session).await;
        let stayed = (&now["status"], &now["restart_count"]);
        assert_eq!(stayed, (&json!("running"), &json!(0)), "{session}");
    }
    // Without them they sleep.
    drop((silent, silent_too, quiet));
    for session in SESSIONS {
        let asleep = |info: &Value| info["status"] == "paused";
        fixture.until(session, asleep).await;
    }
}
