//! `GET /api/warm-runtime-configs`: the templates that clients may start sandboxes from.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::auth::Turn;
use super::endpoint::Endpoint;
use super::{ApiError, Shared};
use crate::gateway::configs::WarmConfig;
use crate::gateway::sandboxes::SandboxError;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WarmConfigs {
    configs: Vec<WarmConfig>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/warm-runtime-configs", warm_configs)
        .says("The templates that sandboxes may be started from.")
        .answers::<WarmConfigs>(200)
}

async fn warm_configs(State(api): Shared, turn: Turn) -> Result<Json<WarmConfigs>, ApiError> {
    // Those who ask at the same time wait for each other, and none of them for longer than it listens.
    let configs = timeout(turn.left(), api.configs.list()).await;
    let configs = configs.map_err(|_| SandboxError::Timeout)??;
    Ok(Json(WarmConfigs {
        configs: configs.to_vec(),
    }))
}
