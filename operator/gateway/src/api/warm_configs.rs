//! `GET /api/warm-runtime-configs`: the warm configs that clients may start sandboxes from.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::auth::RateLimitedCaller;
use super::endpoint::{Endpoint, Tag};
use super::{ApiError, Shared};
use crate::sandboxes::SandboxError;
use crate::warm_configs::WarmConfig;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WarmConfigs {
    configs: Vec<WarmConfig>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/warm-runtime-configs", warm_configs)
        .documented(
            Tag::WarmConfigs,
            "listWarmConfigs",
            "Lists the warm runtime configs.",
        )
        .response::<WarmConfigs>(200)
}

async fn warm_configs(
    State(api): Shared,
    caller: RateLimitedCaller,
) -> Result<Json<WarmConfigs>, ApiError> {
    // Concurrent callers share one list; each waits no longer than its own time limit.
    let configs = timeout(caller.remaining_time(), api.configs.list()).await;
    let configs = configs.map_err(|_| SandboxError::Timeout)??;
    Ok(Json(WarmConfigs {
        configs: configs.to_vec(),
    }))
}
