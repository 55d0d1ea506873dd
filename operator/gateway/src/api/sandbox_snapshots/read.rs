//! `GET /snapshots/{snapshot_id}`, which clients poll until the snapshot is ready.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::get;
use tokio::time::timeout;

use super::info::SnapshotInfo;
use crate::api::auth::RateLimitedCaller;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::{ApiError, Shared};
use crate::sandboxes::SandboxError;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SNAPSHOTS, "GET", "/snapshots/{snapshot_id}", get(read))
        .documented("getSnapshot", "Returns a snapshot by its id.")
        .response::<SnapshotInfo>(200)
        .errors(&[400, 401, 404, 503])
}

async fn read(
    State(api): Shared,
    caller: RateLimitedCaller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<SnapshotInfo>, ApiError> {
    let Path(id) = path?;
    let finding = api.snapshots.find(&caller.tenant.name, &id);
    let found = timeout(caller.remaining_time(), finding).await;
    let found = found.map_err(|_| SandboxError::Timeout)??;
    Ok(Json(api.snapshot_info(&found)))
}
