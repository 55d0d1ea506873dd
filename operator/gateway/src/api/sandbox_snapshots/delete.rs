//! `DELETE /snapshots/{snapshot_id}`. Sandboxes that were started from it keep what they have.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::delete as method;
use http::StatusCode;
use tokio::time::timeout;

use crate::api::auth::RateLimitedCaller;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::{ApiError, Shared, audit};
use crate::sandboxes::SandboxError;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(
        SNAPSHOTS,
        "DELETE",
        "/snapshots/{snapshot_id}",
        method(delete),
    )
    .documented("deleteSnapshot", "Deletes a snapshot.")
    .empty_response(204)
    .errors(&[400, 401, 404, 503])
}

async fn delete(
    State(api): Shared,
    caller: RateLimitedCaller,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let Path(id) = path?;
    let deleting = async {
        let found = api.snapshots.find(&caller.tenant.name, &id).await?;
        Ok(api.snapshots.delete(&found).await?)
    };
    let deleted = timeout(caller.remaining_time(), deleting).await;
    let deleted = deleted.unwrap_or(Err(SandboxError::Timeout.into()));
    audit::snapshot(
        "delete-snapshot",
        &caller,
        ("", &id),
        deleted.as_ref().copied(),
    );
    deleted.map(|()| StatusCode::NO_CONTENT)
}
