//! `GET /health`: for probes. Not healthy before the index is complete, so that no client is told
//! that its sandbox does not exist.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::{ApiError, Shared};
use crate::gateway::sandboxes::SandboxError;

#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
}

pub(super) async fn health(State(api): Shared) -> Result<Json<Health>, ApiError> {
    if api.sandboxes.index.synced() {
        Ok(Json(Health { status: "ok" }))
    } else {
        Err(SandboxError::NotSynced.into())
    }
}
