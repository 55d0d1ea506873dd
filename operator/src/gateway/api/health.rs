//! `GET /health`: for probes. Not healthy before the index is complete and the API keys are known,
//! so that no client is told that its sandbox does not exist, or is sent away.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::{ApiError, Shared};
use crate::gateway::sandboxes::SandboxError;
use crate::tenants::TenantError;

#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
}

pub(super) async fn health(State(api): Shared) -> Result<Json<Health>, ApiError> {
    if !api.sandboxes.index.synced() {
        return Err(SandboxError::NotSynced.into());
    }
    if !api.tenants.is_loaded() {
        return Err(TenantError::NotLoaded.into());
    }
    Ok(Json(Health { status: "ok" }))
}
