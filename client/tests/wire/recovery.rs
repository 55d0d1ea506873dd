//! Repetition of calls, and sandboxes that have to wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use client::{Error, RuntimeStatus, StartRequest};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{ID, client, info, path, sandbox, serve};

/// Calls that a scripted gateway has seen.
#[derive(Debug, Default)]
struct Seen {
    calls: AtomicU32,
    resumes: AtomicU32,
    is_awake: AtomicBool,
}

fn unavailable(detail: &str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(json!({"detail": detail})),
    )
        .into_response()
}

fn address(headers: &HeaderMap) -> std::net::SocketAddr {
    headers["host"].to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn call_is_repeated_after_503() {
    let seen = Arc::new(Seen::default());
    let list = async |State(seen): State<Arc<Seen>>, headers: HeaderMap| {
        assert_eq!(headers["x-api-key"], "api-key");
        match seen.calls.fetch_add(1, Ordering::SeqCst) {
            0 => unavailable("later"),
            _ => Json(json!({"runtimes": [info(address(&headers), "running")], "total": 1}))
                .into_response(),
        }
    };
    let address = serve(
        Router::new()
            .route("/list", get(list))
            .with_state(seen.clone()),
    )
    .await;
    let list = client(address).list().await.unwrap();
    assert_eq!(list[0].runtime_id, ID);
    assert!(list[0].is_ready());
    assert_eq!(seen.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn rejected_call_is_not_repeated_and_says_why() {
    let seen = Arc::new(Seen::default());
    let start = async |State(seen): State<Arc<Seen>>| {
        seen.calls.fetch_add(1, Ordering::SeqCst);
        (
            StatusCode::BAD_REQUEST,
            Json(json!({"detail": "image: malformed"})),
        )
    };
    let address = serve(
        Router::new()
            .route("/start", post(start))
            .with_state(seen.clone()),
    )
    .await;
    let error = client(address)
        .start(&StartRequest::new("!", "s"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "POST /start was rejected with status 400 Bad Request: image: malformed"
    );
    assert_eq!(seen.calls.load(Ordering::SeqCst), 1);
}

/// Routes of a sandbox that answers once it was resumed.
fn sleeping(seen: &Arc<Seen>) -> Router {
    let runtime = async |State(seen): State<Arc<Seen>>, headers: HeaderMap| {
        let is_awake = seen.is_awake.load(Ordering::SeqCst);
        Json(info(
            address(&headers),
            if is_awake { "running" } else { "paused" },
        ))
    };
    let resume = async |State(seen): State<Arc<Seen>>, headers: HeaderMap| {
        seen.resumes.fetch_add(1, Ordering::SeqCst);
        seen.is_awake.store(true, Ordering::SeqCst);
        Json(info(address(&headers), "starting"))
    };
    let act = async |State(seen): State<Arc<Seen>>, headers: HeaderMap, Json(body): Json<Value>| {
        assert_eq!(headers["x-session-api-key"], "session-key");
        if !seen.is_awake.load(Ordering::SeqCst) {
            return unavailable("sandbox is paused");
        }
        seen.calls.fetch_add(1, Ordering::SeqCst);
        let command = body["action"]["args"]["command"].clone();
        let metadata =
            json!({"exit_code": 0, "working_dir": "/workspace", "prefix": "", "suffix": ""});
        let extras = json!({"command": command, "metadata": metadata, "hidden": false});
        Json(json!({"observation": "run", "content": "hello", "extras": extras, "success": true}))
            .into_response()
    };
    Router::new()
        .route("/runtime/{id}", get(runtime))
        .route("/resume", post(resume))
        .route(&path("/execute_action"), post(act))
        .route(&path("/alive"), get(async || Json(json!({"status": "ok"}))))
        .with_state(seen.clone())
}

#[tokio::test]
async fn command_of_a_paused_sandbox_runs_once_after_it_woke() {
    let seen = Arc::new(Seen::default());
    let address = serve(sleeping(&seen)).await;
    let output = sandbox(address).run("echo hello").await.unwrap();
    assert_eq!(
        (output.content.as_str(), output.exit_code()),
        ("hello", Some(0))
    );
    assert_eq!(seen.resumes.load(Ordering::SeqCst), 1);
    assert_eq!(seen.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn resume_reports_each_step_in_order() {
    let seen = Arc::new(Seen::default());
    let address = serve(sleeping(&seen)).await;
    let mut steps = Vec::new();
    let client = client(address);
    client
        .resume_and_wait(ID, &mut |step| steps.push(step.status))
        .await
        .unwrap();
    assert_eq!(
        steps,
        [RuntimeStatus::StartingRuntime, RuntimeStatus::Ready]
    );
}

#[tokio::test]
async fn command_that_may_have_run_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            stream.shutdown().await.unwrap();
        }
    });
    let error = sandbox(address).run("rm -r .").await.unwrap_err();
    assert!(
        matches!(error, Error::Unreachable { sent: true, .. }),
        "{error:?}"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn failed_sandbox_is_an_error_with_its_log() {
    let start = async |headers: HeaderMap| {
        let mut info = info(address(&headers), "error");
        info["status_detail"] = "crash loop".into();
        info["pod_logs"] = "no such file\n".into();
        Json(info)
    };
    let address = serve(Router::new().route("/start", post(start))).await;
    let mut last = None;
    let request = StartRequest::new("host", "s");
    let started = client(address)
        .start_and_wait(&request, &mut |step| last = Some(step.status))
        .await;
    let error = started.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("sandbox {ID} failed: crash loop\nno such file")
    );
    assert_eq!(last, Some(RuntimeStatus::Error));
}
