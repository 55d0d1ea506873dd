//! `GET /health`: for probes. Not healthy before the index is complete and the API keys are known,
//! so that no client is told that its sandbox does not exist, or is sent away.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::{Access, Endpoint};
use super::{ApiError, Shared};
use crate::gateway::sandboxes::SandboxError;
use crate::tenants::TenantError;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    status: &'static str,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/health", health)
        .says("Whether this replica can answer.")
        .open_to(Access::Anybody)
        .answers::<Health>(200)
        .fails(&[503])
}

async fn health(State(api): Shared) -> Result<Json<Health>, ApiError> {
    if !api.sandboxes.index.synced() {
        return Err(SandboxError::NotSynced.into());
    }
    if !api.tenants.is_loaded() {
        return Err(TenantError::NotLoaded.into());
    }
    Ok(Json(Health { status: "ok" }))
}
