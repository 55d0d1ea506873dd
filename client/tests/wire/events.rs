//! The stream of events.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse as _;
use axum::routing::get;
use client::{Error, Event};
use parking_lot::Mutex;

use crate::fixture::{client, info, serve};

#[tokio::test]
async fn stream_goes_on_after_the_last_event() {
    let cursors = Arc::new(Mutex::new(Vec::new()));
    let events = async |State(cursors): State<Arc<Mutex<Vec<String>>>>, headers: HeaderMap| {
        let cursor = headers
            .get("last-event-id")
            .map(|id| id.to_str().unwrap().to_owned());
        let address = headers["host"].to_str().unwrap().parse().unwrap();
        let mut info = info(address, "running");
        info["change"] = "listed".into();
        info["at"] = "2026-11-27T04:00:00Z".into();
        let text = match &cursor {
            None => format!(": keep-alive\n\nevent: runtime\nid: c1\ndata: {info}\n\nevent: synced\nid: c2\ndata: {{}}\n\n"),
            Some(_) => "event: later\ndata: {}\n\nevent: deleted\nid: c3\n\
                        data: {\"runtime_id\": \"abcdefghijklmnop\", \"session_id\": \"s\"}\n\nevent: resumed\ndata: {}\n\n"
                .into(),
        };
        cursors.lock().push(cursor.unwrap_or_default());
        ([("content-type", "text/event-stream")], text).into_response()
    };
    let router = Router::new()
        .route("/events", get(events))
        .with_state(cursors.clone());
    let client = client(serve(router).await);
    let mut stream = client.events(None).await.unwrap();
    let Event::Runtime(runtime) = stream.next().await.unwrap() else {
        panic!("a sandbox is listed first");
    };
    assert_eq!(runtime.info.session_id, "s");
    assert!(matches!(stream.next().await.unwrap(), Event::Synced));
    assert!(matches!(stream.next().await.unwrap(), Event::Reopened));
    assert!(matches!(stream.next().await.unwrap(), Event::Deleted(_)));
    assert!(matches!(stream.next().await.unwrap(), Event::Resumed));
    assert_eq!(*cursors.lock(), ["", "c2"]);
}

#[tokio::test]
async fn gateway_without_events_is_unsupported() {
    let client = client(serve(Router::new()).await);
    assert!(matches!(
        client.events(None).await,
        Err(Error::Unsupported(_))
    ));
}
