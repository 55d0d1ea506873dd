//! `GET /health`: for probes. Fails until the index is complete and the API keys are known: until
//! then, clients could get a wrong 404 or 401.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::{Access, Endpoint, Tag};
use super::{ApiError, Shared};
use crate::sandboxes::SandboxError;
use shared::tenants::TenantError;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    status: &'static str,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/health", health)
        .documented(
            Tag::Operation,
            "getHealth",
            "Reports that this replica can serve requests.",
        )
        .access(Access::Public)
        .response::<Health>(200)
        .errors(&[503])
}

async fn health(State(api): Shared) -> Result<Json<Health>, ApiError> {
    if !api.sandboxes.index.is_synced() {
        return Err(SandboxError::NotSynced.into());
    }
    if !api.tenants.is_loaded() {
        return Err(TenantError::NotLoaded.into());
    }
    Ok(Json(Health { status: "ok" }))
}
