//! `POST /renew`: gives a server that goes on in another sandbox the secrets of that sandbox
//! (`docs/specs/supervisor.md`, section 12).

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::Value;

use super::access::Access;
use super::body::receive_json;
use super::error::{detail, unexpected};
use crate::serve::executor::Executor;

/// Limit of a request body, which holds one key.
const MAX_BODY_BYTES: usize = 64 << 10;

pub(super) async fn post(
    State(executor): State<Arc<Executor>>,
    Extension(access): Extension<Arc<Access>>,
    body: Body,
) -> Response {
    let received = receive_json(body, MAX_BODY_BYTES).await;
    let Some((Value::Object(request), _budget)) = received else {
        return unexpected();
    };
    let Some(key) = request.get("session_api_key").and_then(Value::as_str) else {
        return unexpected();
    };
    if key.is_empty() || !access.replace_key(key) {
        return detail(StatusCode::CONFLICT, "The server has no session key");
    }
    // Their viewers know the former key only.
    executor.terminals.disconnect().await;
    // Its end takes up to two seconds, and nothing waits for it.
    tokio::spawn(async move {
        if let Some(vscode) = &executor.plugins.vscode {
            vscode.renew_token().await;
        }
    });
    StatusCode::NO_CONTENT.into_response()
}
