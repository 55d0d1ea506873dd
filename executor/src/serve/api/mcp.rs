//! MCP: `POST /update_mcp_server`, and the two transports over which clients speak it (spec 2.8, 8.3).
//! What is not there before the first update with a server is guarded with the key once more after it,
//! as `Authorization: Bearer`.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use super::error::{detail, unexpected};
use super::validation::{Query, last};
use crate::serve::executor::Executor;
use crate::serve::mcp;

/// Files travel inside messages.
const MAX_BODY: usize = 64 << 20;
const JSON: &[u8] = b"application/json";

type Guard = (Arc<Executor>, Arc<str>);

/// The transports.
pub(super) fn router(executor: &Arc<Executor>, key: &Arc<str>) -> Router<Arc<Executor>> {
    let guard: Guard = (Arc::clone(executor), Arc::clone(key));
    Router::new()
        .route("/mcp/sse", get(open))
        // Relative, so that it holds behind a path as well.
        .route("/mcp/sse/", get(async || Redirect::temporary("../sse")))
        .route("/sse", get(open))
        .route("/mcp/messages/", post(message))
        .route("/messages/", post(message))
        .route("/mcp", exchanges())
        .route("/mcp/", exchanges())
        .layer(middleware::from_fn_with_state(guard, authorise))
}

/// The newer transport wants 405, not 404, where there is neither a stream nor a session to end.
fn exchanges() -> MethodRouter<Arc<Executor>> {
    let neither = async || (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]);
    post(exchange).get(neither).delete(neither)
}

async fn authorise(State((executor, key)): State<Guard>, request: Request, next: Next) -> Response {
    if !executor.mcp.is_offered() {
        return detail(StatusCode::NOT_FOUND, "Not Found");
    }
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if key.is_empty() || bool::from(given.unwrap_or_default().ct_eq(key.as_bytes())) {
        return next.run(request).await;
    }
    let text = r#"{"error": "invalid_token", "error_description": "Authentication required"}"#;
    let challenge = r#"Bearer error="invalid_token", error_description="Authentication required""#;
    let headers = [
        (header::WWW_AUTHENTICATE, challenge),
        (header::CONTENT_TYPE, "application/json"),
    ];
    (StatusCode::UNAUTHORIZED, headers, text).into_response()
}

pub(super) async fn update(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let list = match read(body).await {
        Some(Value::Array(list)) => list,
        Some(_) => {
            let text = "Request must be a list of MCP tools to sync";
            return detail(StatusCode::BAD_REQUEST, text);
        }
        None => return unexpected(),
    };
    let configs = match mcp::parse(&list) {
        Ok(configs) => configs,
        Err(error) => {
            tracing::warn!(%error, "an update of the tool servers is refused");
            return unexpected();
        }
    };
    // To its end, whether or not somebody waits for it.
    let work = tokio::spawn(async move { executor.mcp.update(configs).await });
    let Ok(problems) = work.await else {
        return unexpected();
    };
    let text = "MCP server updated successfully";
    Json(json!({"detail": text, "router_error_log": problems})).into_response()
}

async fn read(body: Body) -> Option<Value> {
    let body = axum::body::to_bytes(body, MAX_BODY).await.ok()?;
    serde_json::from_slice(&body).ok()
}

async fn open(State(executor): State<Arc<Executor>>) -> Response {
    let Some(stream) = executor.mcp.sessions.open(executor.activity.begin()) else {
        return detail(StatusCode::SERVICE_UNAVAILABLE, "Too many streams");
    };
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Accepts a message whose answer goes over the stream of its session.
async fn message(
    State(executor): State<Arc<Executor>>,
    query: Query,
    request: Request,
) -> Response {
    let plain = |status, text: &'static str| (status, text).into_response();
    let Some(id) = last(&query, "session_id") else {
        return plain(StatusCode::BAD_REQUEST, "session_id is required");
    };
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return plain(StatusCode::BAD_REQUEST, "Invalid session ID");
    }
    let Some(session) = executor.mcp.sessions.find(id) else {
        return plain(StatusCode::NOT_FOUND, "Could not find session");
    };
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_json = |kind: &HeaderValue| {
        let start = kind.as_bytes().get(..JSON.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(JSON))
    };
    if !kind.is_some_and(is_json) {
        return plain(StatusCode::BAD_REQUEST, "Invalid Content-Type header");
    }
    let message = read(request.into_body()).await.filter(mcp::is_message);
    let Some(message) = message else {
        return plain(StatusCode::BAD_REQUEST, "Could not parse message");
    };
    let Some(slot) = executor.mcp.slot() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "Too many requests");
    };
    // Ends with the answer, which takes a bounded time.
    tokio::spawn(async move {
        let _slot = slot;
        let _running = executor.activity.begin();
        if let Some(answer) = mcp::answer(&executor.mcp, &message).await {
            session.send(&answer).await;
        }
    });
    plain(StatusCode::ACCEPTED, "Accepted")
}

/// The newer transport, without sessions: a message in, its answer out.
async fn exchange(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let refused = |code: i32, text: &str| {
        let error = json!({"code": code, "message": text});
        let answer = json!({"jsonrpc": "2.0", "id": null, "error": error});
        (StatusCode::BAD_REQUEST, Json(answer)).into_response()
    };
    let message = match read(body).await {
        Some(message) if mcp::is_message(&message) => message,
        Some(_) => return refused(-32600, "Invalid Request"),
        None => return refused(-32700, "Parse error"),
    };
    let Some(_slot) = executor.mcp.slot() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many requests").into_response();
    };
    let _running = executor.activity.begin();
    match mcp::answer(&executor.mcp, &message).await {
        Some(answer) => Json(answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}
