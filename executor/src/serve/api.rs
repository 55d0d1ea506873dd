//! The HTTP side: routes, the session key, and the original's error bodies (spec 1.6, 1.7).

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::StatusCode;
use subtle::ConstantTimeEq as _;

use self::error::detail;
use super::executor::Executor;

mod alive;
mod download_files;
mod error;
mod execute_action;
mod list_files;
mod mcp;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod server_info;
mod upload_file;
mod validation;
mod vscode_connection_token;

/// Answered without a key.
const OPEN: [&str; 2] = ["/alive", "/server_info"];

pub(super) fn router(executor: Arc<Executor>, key: &str) -> Router {
    let key: Arc<str> = key.into();
    Router::new()
        .route("/alive", get(alive::get))
        .route("/server_info", get(server_info::get))
        .route("/execute_action", post(execute_action::post))
        .route("/list_files", post(list_files::post))
        .route("/upload_file", post(upload_file::post))
        .route("/download_files", get(download_files::get))
        .route("/update_mcp_server", post(mcp::update))
        .merge(mcp::router(&executor, &key))
        .route(
            "/vscode/connection_token",
            get(vscode_connection_token::get),
        )
        // Each reads its body within bounds of its own.
        .layer(DefaultBodyLimit::disable())
        .fallback(async |executor| refuse(&executor, StatusCode::NOT_FOUND, "Not Found"))
        .method_not_allowed_fallback(async |executor| {
            refuse(
                &executor,
                StatusCode::METHOD_NOT_ALLOWED,
                "Method Not Allowed",
            )
        })
        .layer(middleware::from_fn_with_state(key, authorise))
        .with_state(executor)
}

/// Once tool servers are offered, the original has their application answer for every path that it
/// does not know.
fn refuse(executor: &State<Arc<Executor>>, status: StatusCode, text: &str) -> Response {
    if executor.mcp.is_offered() {
        (StatusCode::NOT_FOUND, "Not Found").into_response()
    } else {
        detail(status, text)
    }
}

/// Guards every path but the open ones, unknown ones included. Without a key all is open.
async fn authorise(State(key): State<Arc<str>>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(crds::contract::header::SESSION_API_KEY);
    let given = given.map_or(&b""[..], |value| value.as_bytes());
    let open = key.is_empty() || OPEN.contains(&request.uri().path());
    if open || bool::from(given.ct_eq(key.as_bytes())) {
        next.run(request).await
    } else {
        detail(StatusCode::FORBIDDEN, "Invalid API Key")
    }
}
