//! HTTP routes, the session key and the error bodies of the Python server
//! (`docs/specs/executor.md`, sections 1.6 and 1.7).

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use self::error::detail;
use super::executor::Executor;
use super::plugins::VsCode;

mod body;
mod download_files;
mod error;
mod execute_action;
mod list_files;
mod mcp;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod server_info;
mod upload_file;

/// Paths that need no key.
const PUBLIC_PATHS: [&str; 2] = ["/alive", "/server_info"];

pub(super) fn router(executor: Arc<Executor>, key: &str) -> Router {
    let key: Arc<str> = key.into();
    Router::new()
        // The port opens only when the server is ready, so nothing is checked.
        .route("/alive", get(async || Json(json!({"status": "ok"}))))
        .route("/server_info", get(server_info::get))
        .route("/execute_action", post(execute_action::post))
        .route("/list_files", post(list_files::post))
        .route("/upload_file", post(upload_file::post))
        .route("/download_files", get(download_files::get))
        .route("/update_mcp_server", post(mcp::update))
        .merge(mcp::router(&executor))
        .route("/vscode/connection_token", get(connection_token))
        // Each handler has its own body limit.
        .layer(DefaultBodyLimit::disable())
        .fallback(async |executor| refuse(&executor, StatusCode::NOT_FOUND, "Not Found"))
        .method_not_allowed_fallback(async |executor| {
            refuse(
                &executor,
                StatusCode::METHOD_NOT_ALLOWED,
                "Method Not Allowed",
            )
        })
        .layer(middleware::from_fn_with_state(key, authorize))
        .with_state(executor)
}

/// `docs/specs/executor.md`, section 2.7.
async fn connection_token(State(executor): State<Arc<Executor>>) -> Json<Value> {
    let vscode = executor.plugins.vscode.as_ref();
    Json(json!({"token": vscode.and_then(VsCode::token)}))
}

/// Rejects an unknown path. Once tool servers are configured, the MCP application of the Python
/// server answers these requests, in plain text.
fn refuse(executor: &State<Arc<Executor>>, status: StatusCode, text: &str) -> Response {
    if executor.mcp.is_offered() {
        (StatusCode::NOT_FOUND, "Not Found").into_response()
    } else {
        detail(status, text)
    }
}

/// Requires the key for all paths but `PUBLIC_PATHS`, also unknown ones. An empty key disables it.
async fn authorize(State(key): State<Arc<str>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = key.is_empty() || PUBLIC_PATHS.contains(&path);
    let is_key =
        |given: Option<&[u8]>| given.is_some_and(|given| given.ct_eq(key.as_bytes()).into());
    let session_key = request
        .headers()
        .get(crds::contract::header::SESSION_API_KEY);
    if open || is_key(session_key.map(HeaderValue::as_bytes)) {
        return next.run(request).await;
    }
    match request.headers().get(header::AUTHORIZATION) {
        Some(given) if mcp::is_transport(path) => {
            if is_key(given.as_bytes().strip_prefix(b"Bearer ")) {
                next.run(request).await
            } else {
                mcp::invalid_token()
            }
        }
        _ => detail(StatusCode::FORBIDDEN, "Invalid API Key"),
    }
}
