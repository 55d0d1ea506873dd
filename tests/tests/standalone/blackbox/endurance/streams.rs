//! Event streams and web sockets that stay open, talking or silent, over either version of HTTP. They
//! alone keep their sandboxes awake: the servers behind say that they have been idle for ever.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::Scale;
use crate::blackbox::streams::{Socket, echoes, listen, next, open};
use crate::fixture::{fixture_with, text};

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
    let events = open(&url, &text(info, "session_api_key"), http2).await;
    events.map(|event| event.unwrap())
}

/// A web socket of the sandbox that echoes.
async fn socket(info: &Value) -> Socket {
    let mut socket = listen(&text(info, "url"), &text(info, "session_api_key")).await;
    let ready = Message::text(r#"{"kind":"ready"}"#);
    assert_eq!(next(&mut socket).await, ready);
    socket
}

/// Reads so many events, each as it is sent, and has a message echoed after each.
async fn talk(mut events: impl Stream<Item = Bytes> + Unpin, mut socket: Socket, count: u128) {
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
    let Some(fixture) = fixture_with(&args) else {
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
    let talk = async |http2| {
        let events = events(&talking, EVENT_INTERVAL, http2).await;
        talk(events, socket(&talking).await, count).await;
    };
    let all = futures::future::join4(silent.next(), silent_too.next(), talk(false), talk(true));
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
        fixture
            .until(session, |info| info["status"] == "paused")
            .await;
    }
}
