//! HTTP routes, the session key and the error bodies of the Python server
//! (`docs/specs/executor.md`, sections 1.6 and 1.7).

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use self::access::Access;
use self::error::detail;
use super::executor::Executor;
use super::plugins::VsCode;

mod access;
mod body;
mod browser;
mod download_files;
mod error;
mod execute_action;
mod list_files;
mod mcp;
mod plugin_proxy;
mod prepare_save;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod renew;
mod server_info;
mod terminals;
mod upload_file;

pub(super) fn router(executor: Arc<Executor>, key: &str) -> Router {
    let access = Arc::new(Access::new(key, Arc::clone(&executor)));
    Router::new()
        // The port opens only when the server is ready, so nothing is checked.
        .route("/alive", get(async || Json(json!({"status": "ok"}))))
        .route("/server_info", get(server_info::get))
        .route("/execute_action", post(execute_action::post))
        .route("/list_files", post(list_files::post))
        .route("/upload_file", post(upload_file::post))
        .route("/download_files", get(download_files::get))
        .route("/update_mcp_server", post(mcp::update))
        .route("/prepare_save", post(prepare_save::post))
        .route("/renew", post(renew::post))
        .merge(mcp::router(&executor))
        .merge(browser::router())
        .merge(terminals::router())
        .route("/vscode/connection_token", get(connection_token))
        .route("/plugins/{name}", any(plugin_proxy::forward))
        .route("/plugins/{name}/", any(plugin_proxy::forward))
        .route("/plugins/{name}/{*path}", any(plugin_proxy::forward))
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
        .layer(Extension(Arc::clone(&access)))
        .layer(middleware::from_fn_with_state(access, access::authorize))
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
