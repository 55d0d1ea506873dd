//! Waits for a start and for a pause, against gateways with and without events.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use client::{Error, RuntimeInfo, RuntimeStatus, StartRequest};
use futures::StreamExt as _;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fixture::{ID, client, info, path, serve};

/// States that a sandbox goes through, one with each look at it. It stays in the last one, and is gone
/// after a `null`.
#[derive(Debug, Default)]
struct Script {
    states: Mutex<VecDeque<Value>>,
    /// An event stream is open.
    is_followed: Notify,
}

fn script(states: impl IntoIterator<Item = Value>) -> Arc<Script> {
    let states = Mutex::new(states.into_iter().collect());
    Arc::new(Script {
        states,
        ..Script::default()
    })
}

fn state(status: &str, pod_status: &str, detail: Option<&str>) -> Value {
    json!({"status": status, "pod_status": pod_status, "status_detail": detail})
}

async fn look(State(script): State<Arc<Script>>, headers: HeaderMap) -> Response {
    let mut states = script.states.lock();
    let next = if states.len() > 1 {
        states.pop_front().unwrap()
    } else {
        states[0].clone()
    };
    let Value::Object(next) = next else {
        let detail = json!({"detail": "no such runtime"});
        return (StatusCode::NOT_FOUND, Json(detail)).into_response();
    };
    let mut info = info(headers["host"].to_str().unwrap().parse().unwrap(), "");
    info.as_object_mut().unwrap().extend(next);
    Json(info).into_response()
}

fn router(script: &Arc<Script>) -> Router {
    let build = async |State(script): State<Arc<Script>>| {
        let state = script.states.lock().pop_front().unwrap();
        Json(json!({"status": state, "image": "i", "error": null}))
    };
    Router::new()
        .route("/start", post(look))
        .route("/runtime/{id}", get(look))
        .route("/pause", post(look))
        .route("/build_status", get(build))
        .route(&path("/alive"), get(async || Json(json!({"status": "ok"}))))
        .with_state(script.clone())
}

/// Words of a start, and its end.
async fn words(states: impl IntoIterator<Item = Value>) -> (Vec<RuntimeStatus>, Option<Error>) {
    let client = client(serve(router(&script(states))).await);
    let mut words = Vec::new();
    let request = StartRequest::new("host", "s");
    let started = client
        .start_and_wait(&request, &mut |step| words.push(step.status))
        .await;
    (words, started.err())
}

#[tokio::test]
async fn start_leads_through_the_words_of_openhands() {
    use RuntimeStatus::StartingRuntime;
    use RuntimeStatus::{Error as Failed, ErrorRuntimeDisconnected, Ready, RuntimeStarted};
    let begin = || {
        [
            state("starting", "Not Found", None),
            state("starting", "Pending", Some("pulling image")),
            state("starting", "Pending", Some("pulling image")),
            state("starting", "Running", None),
        ]
    };
    let started = [StartingRuntime, StartingRuntime, RuntimeStarted];
    for (last, word, error) in [
        (state("running", "Ready", None), Ready, ""),
        (
            state("error", "Failed", Some("crash loop")),
            Failed,
            "crash loop",
        ),
        (
            state("stopped", "Not Found", None),
            ErrorRuntimeDisconnected,
            "there is no sandbox",
        ),
        (Value::Null, ErrorRuntimeDisconnected, "there is no sandbox"),
    ] {
        let (words, failure) = words(begin().into_iter().chain([last])).await;
        assert_eq!(words, [&started[..], &[word]].concat());
        let text = failure.map(|failure| failure.to_string());
        assert_eq!(text.is_none(), error.is_empty(), "{text:?}");
        assert!(text.unwrap_or_default().contains(error));
    }
}

#[tokio::test]
async fn build_is_reported_once_per_status() {
    let states = ["QUEUED", "WORKING", "WORKING", "SUCCESS"].map(Value::from);
    let client = client(serve(router(&script(states))).await);
    let mut steps = Vec::new();
    let build = client
        .wait_build("b", &mut |step| {
            steps.push((step.status, step.message.clone()));
        })
        .await;
    assert_eq!(build.unwrap().status, "SUCCESS");
    let texts = ["i: QUEUED", "i: WORKING"].map(|text| Some(text.to_owned()));
    assert_eq!(
        steps,
        texts.map(|text| (RuntimeStatus::BuildingRuntime, text))
    );
}

/// Opens a stream with one event, which then goes on or ends.
fn events(goes_on: bool) -> axum::routing::MethodRouter<Arc<Script>> {
    get(async move |State(script): State<Arc<Script>>| {
        script.is_followed.notify_one();
        let event = Bytes::from_static(b"event: synced\nid: c1\ndata: {}\n\n");
        let event = futures::stream::iter([Ok::<_, std::io::Error>(event)]);
        let body = if goes_on {
            axum::body::Body::from_stream(event.chain(futures::stream::pending()))
        } else {
            axum::body::Body::from_stream(event)
        };
        ([("content-type", "text/event-stream")], body)
    })
}

#[tokio::test]
async fn start_ends_with_events_that_go_on_or_break() {
    for goes_on in [true, false] {
        let script = script([state("starting", "Pending", None)]);
        let events = Router::new().route("/events", events(goes_on));
        let router = router(&script).merge(events.with_state(script.clone()));
        let client = client(serve(router).await);
        let request = StartRequest::new("host", "s");
        let started = async { client.start_and_wait(&request, &mut |_| ()).await };
        let changed = async {
            script.is_followed.notified().await;
            *script.states.lock() = [state("running", "Ready", None)].into();
        };
        let (started, ()) = tokio::join!(started, changed);
        assert!(started.unwrap().info().is_ready());
    }
}

#[tokio::test]
async fn pause_is_waited_for_until_its_state_is_kept() {
    let pausing = || {
        let mut paused = state("paused", "Not Found", None);
        paused["pausing"] = true.into();
        paused
    };
    let mut kept = state("paused", "Not Found", None);
    kept["persisted"] = json!({"level": "Root", "reason": "no checkpoint", "size": 1});
    let script = script([pausing(), pausing(), pausing(), kept]);
    let client = client(serve(router(&script)).await);
    let requested: RuntimeInfo = client.pause(ID).await.unwrap();
    assert!(requested.pausing);
    let paused = client.wait_paused(requested).await.unwrap();
    let kept = paused.persisted.unwrap();
    assert_eq!(
        (kept.level.as_str(), kept.reason.as_deref()),
        ("Root", Some("no checkpoint"))
    );
    assert!(!paused.pausing);
}
