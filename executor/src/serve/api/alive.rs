//! `GET /alive`. The port opens only when the server is ready, so the handler checks nothing.

use axum::Json;
use serde_json::{Value, json};

pub(super) async fn get() -> Json<Value> {
    Json(json!({"status": "ok"}))
}
