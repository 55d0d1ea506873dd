//! `GET /vscode/connection_token` (`docs/specs/executor.md`, section 2.7).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::serve::executor::Executor;

pub(super) async fn get(State(executor): State<Arc<Executor>>) -> Json<Value> {
    let vscode = executor.plugins.vscode.as_ref();
    Json(json!({"token": vscode.and_then(|vscode| vscode.token())}))
}
