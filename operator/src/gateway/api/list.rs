//! `GET /list`: the live sandboxes of the caller, and nothing else: clients count the entries.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::Caller;
use super::endpoint::Endpoint;
use super::info::{Lifecycle, RuntimeInfo};
use super::{ApiError, Shared};

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct List {
    runtimes: Vec<RuntimeInfo>,
    total: usize,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/list", list)
        .says("The live sandboxes of the caller.")
        .answers::<List>(200)
}

/// As clients of 2024 call it.
pub(super) fn old_endpoint() -> Endpoint {
    Endpoint::get("/runtime/list", list)
        .says("The same as /list.")
        .answers::<List>(200)
}

async fn list(State(api): Shared, Caller(tenant): Caller) -> Result<Json<List>, ApiError> {
    api.sandboxes.synced().await?;
    let of_tenant = api.sandboxes.index.list(|entry| {
        let session = entry.session();
        session.is_some_and(|s| s.tenant == tenant.name) && api.sandboxes.is_ours(entry)
    });
    let runtimes: Vec<_> = of_tenant
        .iter()
        .filter_map(|entry| api.info(entry))
        .filter(|info| matches!(info.status, Lifecycle::Starting | Lifecycle::Running))
        .collect();
    Ok(Json(List {
        total: runtimes.len(),
        runtimes,
    }))
}
