//! `GET /api/warm-runtime-configs`: the templates that clients may start sandboxes from.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::Caller;
use super::endpoint::Endpoint;
use super::{ApiError, Shared};
use crate::gateway::configs::WarmConfig;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WarmConfigs {
    configs: Vec<WarmConfig>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/warm-runtime-configs", warm_configs)
        .says("The templates that sandboxes may be started from.")
        .answers::<WarmConfigs>(200)
}

async fn warm_configs(State(api): Shared, _: Caller) -> Result<Json<WarmConfigs>, ApiError> {
    let configs = api.configs.list().await?;
    Ok(Json(WarmConfigs {
        configs: configs.to_vec(),
    }))
}
