//! `GET /alive`. The port is open only when the server can serve, so there is nothing to check.

use axum::Json;
use serde_json::{Value, json};

pub(super) async fn get() -> Json<Value> {
    Json(json!({"status": "ok"}))
}
