//! `GET /list`: the live sandboxes of the caller only, because clients count the entries.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::Caller;
use super::endpoint::{Endpoint, Tag};
use super::info::RuntimeInfo;
use super::{ApiError, Shared};
use crate::runtime_status::RuntimeStatus;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct List {
    runtimes: Vec<RuntimeInfo>,
    total: usize,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/list", list)
        .documented(
            Tag::Sandboxes,
            "listSandboxes",
            "Lists the live sandboxes of the caller.",
        )
        .response::<List>(200)
}

/// Path that clients of 2024 call.
pub(super) fn old_endpoint() -> Endpoint {
    Endpoint::get("/runtime/list", list)
        .documented(
            Tag::Sandboxes,
            "listSandboxesOfOldClients",
            "Same as /list.",
        )
        .response::<List>(200)
}

async fn list(State(api): Shared, Caller(tenant): Caller) -> Result<Json<List>, ApiError> {
    api.sandboxes.synced().await?;
    let sandboxes = api.sandboxes.of_tenant(&tenant.name);
    let runtimes: Vec<_> = sandboxes
        .iter()
        .filter_map(|entry| api.info(entry))
        .filter(|info| {
            matches!(
                info.status,
                RuntimeStatus::Starting | RuntimeStatus::Running
            )
        })
        .collect();
    Ok(Json(List {
        total: runtimes.len(),
        runtimes,
    }))
}
