//! `GET /server_info`: what decides whether a sandbox is idle, and what it uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::serve::executor::Executor;
use crate::serve::resources::Resources;

#[derive(Debug, Serialize)]
pub(super) struct ServerInfo {
    uptime: f64,
    idle_time: f64,
    resources: Resources,
}

pub(super) async fn get(State(executor): State<Arc<Executor>>) -> Json<ServerInfo> {
    // In this order, so that idle never exceeds up.
    let idle_time = executor.activity.idle().as_secs_f64();
    Json(ServerInfo {
        uptime: executor.activity.uptime().as_secs_f64(),
        idle_time,
        resources: executor.meter.measure(),
    })
}
