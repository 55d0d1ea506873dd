//! Terminals over HTTP and WebSocket (`docs/specs/executor.md`, section 13).

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{any, get};
use http::StatusCode;

use super::error::detail;
use crate::serve::executor::Executor;

mod connect;
mod create;
mod delete;
mod list;
mod show;
mod viewer;

pub(super) fn router() -> Router<Arc<Executor>> {
    Router::new()
        .route("/terminals", get(list::get).post(create::post))
        .route("/terminals/{id}", get(show::get).delete(delete::delete))
        .route("/terminals/{id}/connect", any(connect::to_terminal))
        .route("/terminals/agent/connect", any(connect::to_agent))
}

fn not_found() -> Response {
    detail(StatusCode::NOT_FOUND, "no such terminal")
}
