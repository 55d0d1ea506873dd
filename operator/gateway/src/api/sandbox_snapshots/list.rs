//! `GET /snapshots`: the snapshots of the caller, the oldest first.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::info::SnapshotInfo;
use crate::api::auth::RateLimitedCaller;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::{ApiError, Shared};
use crate::sandboxes::SandboxError;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SNAPSHOTS, "GET", "/snapshots", get(list))
        .documented("listSnapshots", "Lists the snapshots of the caller.")
        .optional_query("runtime_id", "Id of a sandbox: only its snapshots.")
        .response::<SnapshotList>(200)
        .errors(&[400, 401, 503])
}

#[derive(Debug, Deserialize)]
struct ListQuery {
    runtime_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotList {
    snapshots: Vec<SnapshotInfo>,
}

async fn list(
    State(api): Shared,
    caller: RateLimitedCaller,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<SnapshotList>, ApiError> {
    let Query(query) = query?;
    // Sandboxes name the runtime ids, so an incomplete index could hide snapshots.
    api.sandboxes.synced().await?;
    let listing = api.snapshots.list(&caller.tenant.name);
    let listed = timeout(caller.remaining_time(), listing).await;
    let listed = listed.map_err(|_| SandboxError::Timeout)??;
    let infos = listed.iter().map(|snapshot| api.snapshot_info(snapshot));
    let wanted = query.runtime_id.filter(|id| !id.is_empty());
    let is_wanted = |info: &SnapshotInfo| wanted.is_none() || info.runtime_id == wanted;
    let snapshots = infos.filter(is_wanted).collect();
    Ok(Json(SnapshotList { snapshots }))
}
