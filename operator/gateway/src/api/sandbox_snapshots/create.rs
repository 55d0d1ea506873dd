//! `POST /snapshots`: a snapshot of a running sandbox of the caller.

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use crds::SandboxSnapshot;
use crds::contract::persistence::PersistenceLevel;
use crds::duration::Duration;
use crds::snapshot::SandboxSnapshotSpec;
use http::StatusCode;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;

use super::info::SnapshotInfo;
use crate::api::auth::RateLimitedCaller;
use crate::api::body::Body;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::{Api, ApiError, Shared, audit};
use crate::runtime_status::{RuntimeStatus, derive};
use crate::sandbox_snapshots::SnapshotError;
use crate::sandboxes::SandboxError;
use shared::tenants::Tenant;

const EXAMPLE: &str =
    r#"{"runtime_id": "abcdefghijklmnop", "level": "Memory", "delete_after": "24h"}"#;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SNAPSHOTS, "POST", "/snapshots", post(create))
        .documented(
            "createSnapshot",
            "Begins a snapshot of a running sandbox, which goes on running.",
        )
        .request_body::<SnapshotRequest>(EXAMPLE)
        .response::<SnapshotInfo>(201)
        .errors(&[400, 401, 404, 409, 413, 429, 503])
}

/// Body of the request for a snapshot.
#[derive(Debug, Deserialize, JsonSchema)]
struct SnapshotRequest {
    /// Id of the sandbox.
    runtime_id: String,
    /// Highest level of the snapshot: `Workspace`, `Root` or `Memory`. Absent: that of the sandbox.
    level: Option<String>,
    /// Time after which the snapshot is deleted, for example `24h`. Absent or `0s`: never.
    delete_after: Option<String>,
}

/// Validated request.
#[derive(Debug)]
struct Wanted {
    runtime: String,
    level: Option<PersistenceLevel>,
    delete_after: Option<Duration>,
}

impl SnapshotRequest {
    fn check(self) -> Result<Wanted, ApiError> {
        let level = present(self.level.as_deref()).map(str::parse).transpose();
        let delete_after = present(self.delete_after.as_deref());
        let delete_after = delete_after.map(str::parse).transpose();
        Ok(Wanted {
            runtime: self.runtime_id,
            level: level.map_err(|error| ApiError::bad_request(format!("level: {error}")))?,
            delete_after: delete_after
                .map_err(|error| ApiError::bad_request(format!("delete_after {error}")))?,
        })
    }
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

async fn create(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<SnapshotRequest>,
) -> Result<(StatusCode, Json<SnapshotInfo>), ApiError> {
    let wanted = request.check()?;
    let creating = api.create_snapshot(&caller.tenant, &wanted);
    let created = timeout(caller.remaining_time(), creating).await;
    let created = created.unwrap_or(Err(SandboxError::Timeout.into()));
    let name = created.as_ref().ok().map(ResourceExt::name_any);
    audit::snapshot(
        "create-snapshot",
        &caller,
        (&wanted.runtime, &name.unwrap_or_default()),
        created.as_ref().map(drop),
    );
    Ok((StatusCode::CREATED, Json(api.snapshot_info(&created?))))
}

impl Api {
    async fn create_snapshot(
        &self,
        tenant: &Tenant,
        wanted: &Wanted,
    ) -> Result<SandboxSnapshot, ApiError> {
        let entry = self.find_owned(tenant, &wanted.runtime).await?;
        let state = match derive(&entry).lifecycle {
            RuntimeStatus::Running => None,
            RuntimeStatus::Starting => Some("is starting"),
            RuntimeStatus::Paused => Some("is paused"),
            RuntimeStatus::Stopped => Some("was stopped"),
            RuntimeStatus::Error => Some("has failed"),
        };
        if let Some(state) = state {
            return Err(SnapshotError::NotRunning(state).into());
        }
        let spec = SandboxSnapshotSpec {
            sandbox: entry.key.name.clone(),
            level: wanted.level,
            delete_after: wanted.delete_after,
            tenant: None,
        };
        let created = self.snapshots.create(&tenant.name, &entry.runtime_id, spec);
        Ok(created.await?)
    }
}
