//! MCP: `POST /update_mcp_server` and the two transports of clients (`docs/specs/executor.md`,
//! sections 2.8 and 8.3).
//!
//! The transports answer 404 until the first update with a server.

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

use super::body::receive_json;
use super::error::{Query, detail, last, unexpected};
use crate::serve::executor::Executor;
use crate::serve::mcp;

/// Limit of a message, which may contain files.
const MAX_BODY_BYTES: usize = 64 << 20;
const JSON: &[u8] = b"application/json";

pub(super) fn router(executor: &Arc<Executor>) -> Router<Arc<Executor>> {
    Router::new()
        .route("/mcp/sse", get(open))
        // A relative redirect also works behind a path prefix.
        .route("/mcp/sse/", get(async || Redirect::temporary("../sse")))
        .route("/sse", get(open))
        .route("/mcp/messages/", post(message))
        .route("/messages/", post(message))
        .route("/mcp", streamable_http_routes())
        .route("/mcp/", streamable_http_routes())
        .layer(middleware::from_fn_with_state(
            Arc::clone(executor),
            require_servers,
        ))
}

/// Returns whether a path accepts the key as `Authorization: Bearer` too, as MCP clients send it.
pub(super) fn is_transport(path: &str) -> bool {
    matches!(
        path,
        "/mcp" | "/mcp/" | "/mcp/sse" | "/mcp/sse/" | "/mcp/messages/" | "/sse" | "/messages/"
    )
}

pub(super) fn invalid_token() -> Response {
    let text = r#"{"error": "invalid_token", "error_description": "Authentication required"}"#;
    let challenge = r#"Bearer error="invalid_token", error_description="Authentication required""#;
    let headers = [
        (header::WWW_AUTHENTICATE, challenge),
        (header::CONTENT_TYPE, "application/json"),
    ];
    (StatusCode::UNAUTHORIZED, headers, text).into_response()
}

/// Streamable HTTP. A server without streams and sessions must answer 405 to GET and DELETE.
fn streamable_http_routes() -> MethodRouter<Arc<Executor>> {
    let neither = async || (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]);
    post(exchange).get(neither).delete(neither)
}

async fn require_servers(
    State(executor): State<Arc<Executor>>,
    request: Request,
    next: Next,
) -> Response {
    if executor.mcp.is_offered() {
        next.run(request).await
    } else {
        detail(StatusCode::NOT_FOUND, "Not Found")
    }
}

pub(super) async fn update(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let list = match receive_json(body, MAX_BODY_BYTES).await {
        Some((Value::Array(list), _)) => list,
        Some(_) => {
            let text = "Request must be a list of MCP tools to sync";
            return detail(StatusCode::BAD_REQUEST, text);
        }
        None => return unexpected(),
    };
    let configs = match mcp::parse(&list) {
        Ok(configs) => configs,
        Err(error) => {
            tracing::warn!(%error, "invalid update of the tool servers");
            return unexpected();
        }
    };
    // Runs to its end even if the client disconnects.
    let work = tokio::spawn(async move { executor.mcp.update(configs).await });
    let Ok(problems) = work.await else {
        return unexpected();
    };
    // The status stays 200: for clients, any other one is a failure of the sandbox.
    let text = match problems.len() {
        0 => "MCP server updated successfully".to_owned(),
        1 => "1 MCP server cannot be started, see router_error_log".to_owned(),
        failed => format!("{failed} MCP servers cannot be started, see router_error_log"),
    };
    Json(json!({"detail": text, "router_error_log": problems.join("\n")})).into_response()
}

async fn open(State(executor): State<Arc<Executor>>) -> Response {
    let Some(stream) = executor.mcp.sessions.open(executor.activity.begin()) else {
        return detail(StatusCode::SERVICE_UNAVAILABLE, "Too many streams");
    };
    let mut response = Response::new(stream);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Accepts a message. Its response is sent over the event stream of the session.
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
    let Some(slot) = executor.mcp.slot() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "Too many requests");
    };
    let received = receive_json(request.into_body(), MAX_BODY_BYTES).await;
    let Some((message, budget)) = received.filter(|(message, _)| mcp::is_message(message)) else {
        return plain(StatusCode::BAD_REQUEST, "Could not parse message");
    };
    // Bounded: every request to a tool server has a timeout.
    tokio::spawn(async move {
        let (_slot, _budget) = (slot, budget);
        let _running = executor.activity.begin();
        if let Some(answer) = executor.mcp.answer(&message).await {
            session.send(&answer).await;
        }
    });
    plain(StatusCode::ACCEPTED, "Accepted")
}

/// Streamable HTTP without sessions: one message per request, its response in the body.
async fn exchange(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let refused = |code: i32, text: &str| {
        let error = json!({"code": code, "message": text});
        let answer = json!({"jsonrpc": "2.0", "id": null, "error": error});
        (StatusCode::BAD_REQUEST, Json(answer)).into_response()
    };
    let Some(_slot) = executor.mcp.slot() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many requests").into_response();
    };
    let (message, _budget) = match receive_json(body, MAX_BODY_BYTES).await {
        Some(received) if mcp::is_message(&received.0) => received,
        Some(_) => return refused(-32600, "Invalid Request"),
        None => return refused(-32700, "Parse error"),
    };
    let _running = executor.activity.begin();
    match executor.mcp.answer(&message).await {
        Some(answer) => Json(answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}
