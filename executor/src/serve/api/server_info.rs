//! `GET /server_info`: idle time, resource usage and health of the plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::serve::executor::Executor;
use crate::serve::plugins::Health;
use crate::serve::resource_usage::Resources;
use crate::serve::sandbox_usage::SandboxUsage;

#[derive(Debug, Serialize)]
pub(super) struct ServerInfo {
    uptime: f64,
    idle_time: f64,
    /// Of the server process, as the Python server has it.
    resources: Resources,
    /// Additional to the fields of the Python server.
    sandbox: SandboxUsage,
    /// Additional as well.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    plugins: BTreeMap<String, Health>,
    /// Additional as well: name of the shell, or `none`; absent if it is bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<String>,
}

pub(super) async fn get(State(executor): State<Arc<Executor>>) -> Json<ServerInfo> {
    // Read before the uptime, so that the idle time never exceeds it.
    let idle_time = executor.activity.idle().as_secs_f64();
    let shell = executor.shell().unwrap_or_else(|| "none".to_owned());
    Json(ServerInfo {
        uptime: executor.activity.uptime().as_secs_f64(),
        idle_time,
        resources: executor.meter.measure(),
        sandbox: SandboxUsage::measure(&executor.launch_context.working_dir),
        plugins: executor.plugins.health(),
        shell: (shell != "bash").then_some(shell),
    })
}
