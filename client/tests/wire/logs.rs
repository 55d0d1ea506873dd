//! The log of a sandbox.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::routing::get;
use client::{Error, LogEnd, LogEvent, LogOptions};
use parking_lot::Mutex;

use crate::fixture::{ID, client, serve};

type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// A log that breaks after each line, and ends after two.
async fn logs(
    State(requests): State<Requests>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> ([(&'static str, &'static str); 1], String) {
    let cursor = headers.get("last-event-id");
    let cursor = cursor.map_or("", |id| id.to_str().unwrap()).to_owned();
    let line = |id: &str, text: &str| {
        format!(
            ": keep-alive\n\nid: {id}\nevent: line\ndata: {{\"time\": \"2026-01-01T00:00:00Z\", \"text\": \"{text}\"}}\n\n"
        )
    };
    let text = match cursor.as_str() {
        "" => line("c1", "one"),
        "c1" => line("c2", "two") + "id: c3\nevent: li",
        _ => "event: later\ndata: {}\n\nevent: end\ndata: {\"reason\": \"paused\"}\n\n".into(),
    };
    requests.lock().push((query.unwrap_or_default(), cursor));
    ([("content-type", "text/event-stream")], text)
}

#[tokio::test]
async fn log_goes_on_after_the_last_line() {
    let requests = Requests::default();
    let router = Router::new()
        .route(&format!("/runtime/{ID}/logs"), get(logs))
        .with_state(requests.clone());
    let client = client(serve(router).await);
    let options = LogOptions {
        tail: Some(5),
        follow: true,
        previous: false,
    };
    let mut log = client.logs(ID, options).await.unwrap();
    for expected in ["one", "two"] {
        let LogEvent::Line(line) = log.next().await.unwrap() else {
            panic!("{expected} comes first");
        };
        assert_eq!((line.text.as_str(), line.cut), (expected, false));
        assert!(line.time.is_some());
    }
    assert_eq!(log.next().await.unwrap(), LogEvent::End(LogEnd::Paused));
    let requests = requests.lock();
    assert_eq!(requests[0].0, "follow=true&previous=false&tail=5");
    let cursors: Vec<_> = requests.iter().map(|(_, cursor)| cursor.as_str()).collect();
    assert_eq!(cursors, ["", "c1", "c2"]);
}

#[tokio::test]
async fn gateway_without_logs_is_unsupported() {
    let router = Router::new().fallback(|| async {
        let body = r#"{"detail": "no such path"}"#;
        (axum::http::StatusCode::NOT_FOUND, body)
    });
    let client = client(serve(router).await);
    let log = client.logs(ID, LogOptions::default()).await;
    assert!(matches!(log, Err(Error::Unsupported(_))), "{log:?}");
}
