//! `GET /server_info`: what decides whether a sandbox is idle, and what it uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::serve::executor::Executor;
use crate::serve::plugins::Health;
use crate::serve::resources::Resources;

#[derive(Debug, Serialize)]
pub(super) struct ServerInfo {
    uptime: f64,
    idle_time: f64,
    resources: Resources,
    /// Not in the original, which does not tell.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    plugins: BTreeMap<&'static str, Health>,
}

pub(super) async fn get(State(executor): State<Arc<Executor>>) -> Json<ServerInfo> {
    // In this order, so that idle never exceeds up.
    let idle_time = executor.activity.idle().as_secs_f64();
    Json(ServerInfo {
        uptime: executor.activity.uptime().as_secs_f64(),
        idle_time,
        resources: executor.meter.measure(),
        plugins: executor.plugins.health().into_iter().collect(),
    })
}
