//! `POST /list_files`: the names in a directory (`docs/specs/executor.md`, section 2.4).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::body::receive_json;
use super::error::unexpected;
use crate::serve::executor::Executor;

/// Limit of a request body, which holds one path.
const MAX_BODY_BYTES: usize = 1 << 20;

pub(super) async fn post(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let received = receive_json(body, MAX_BODY_BYTES).await;
    let Some((Value::Object(mut request), _budget)) = received else {
        return unexpected();
    };
    let path = match request.remove("path") {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) => Some(path),
        Some(_) => return unexpected(),
    };
    match executor.list(path).await {
        Ok(names) => Json(names).into_response(),
        Err(error) => error.into_response(),
    }
}
