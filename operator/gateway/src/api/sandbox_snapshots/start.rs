//! `POST /snapshots/{snapshot_id}/start`: sandboxes that begin with the state of a snapshot. Each
//! belongs to a session of its own, and starts as by `/start`.

mod request;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::post;
use crds::sandbox::DesiredState;
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::template;
use crate::api::auth::RateLimitedCaller;
use crate::api::body::Body;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::info::RuntimeInfo;
use crate::api::start::Start;
use crate::api::{Api, ApiError, Shared, audit};
use crate::sandboxes::SandboxError;
use request::{SnapshotStart, SnapshotStartRequest};
use shared::index::Entry;

/// Sandboxes of one call that are created at once. They can exceed the limit of waiting starts by as
/// many, because each is checked before the others are in the index.
const MAX_CONCURRENT_STARTS: usize = 4;
/// Time for stopping what a failed call has started.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

const EXAMPLE: &str =
    r#"{"session_ids": ["attempt-1", "attempt-2"], "environment": {"SEED": "1"}}"#;

pub(super) fn endpoint() -> Endpoint {
    let path = "/snapshots/{snapshot_id}/start";
    Endpoint::new(SNAPSHOTS, "POST", path, post(start))
        .documented(
            "startFromSnapshot",
            "Starts sandboxes with the state of a snapshot: one for each session.",
        )
        .request_body::<SnapshotStartRequest>(EXAMPLE)
        .response::<StartedRuntimes>(201)
        .errors(&[400, 401, 404, 409, 413, 503])
}

#[derive(Debug, Serialize, JsonSchema)]
struct StartedRuntimes {
    /// The sandboxes, in the order of the sessions.
    runtimes: Vec<RuntimeInfo>,
}

async fn start(
    State(api): Shared,
    caller: RateLimitedCaller,
    path: Result<Path<String>, PathRejection>,
    Body(request): Body<SnapshotStartRequest>,
) -> Result<(StatusCode, Json<StartedRuntimes>), ApiError> {
    let Path(id) = path?;
    let request = request.check()?;
    let started = api.start_from_snapshot(&caller, &id, request).await;
    let result = started.as_ref().map(drop);
    audit::snapshot("start-snapshot", &caller, ("", &id), result);
    let runtimes = started?;
    Ok((StatusCode::CREATED, Json(StartedRuntimes { runtimes })))
}

impl Api {
    async fn start_from_snapshot(
        &self,
        caller: &RateLimitedCaller,
        id: &str,
        request: SnapshotStart,
    ) -> Result<Vec<RuntimeInfo>, ApiError> {
        let deadline = Instant::now() + caller.remaining_time();
        let finding = self.snapshots.find(&caller.tenant.name, id);
        let snapshot = timeout_at(deadline, finding).await;
        let snapshot = snapshot.map_err(|_| SandboxError::Timeout)??;
        let spec = Arc::new(template::spec(snapshot, self.config())?);
        let are_generated = request.sessions.are_generated();
        let sessions = request.sessions.ids(id)?;
        let starts = sessions.into_iter().map(|session| Start {
            session,
            spec: spec.clone(),
            command_line: None,
            environment: request.environment.clone(),
            notes: request.note.iter().cloned().collect(),
        });
        let starts: Vec<_> = starts.collect();
        let mut obtaining = Vec::new();
        for start in &starts {
            obtaining.push(self.obtain(caller, start, deadline));
        }
        let obtained: Vec<_> = stream::iter(obtaining)
            .buffered(MAX_CONCURRENT_STARTS)
            .collect()
            .await;
        let made: Vec<_> = obtained.iter().flatten().cloned().collect();
        let started = self.all_started(obtained, starts).await;
        if started.is_err() && are_generated {
            // The client does not learn these sessions, so that it could neither use nor stop them.
            self.stop_all(made).await;
        }
        started
    }

    /// Describes all, or fails with the first error.
    async fn all_started(
        &self,
        obtained: Vec<Result<Arc<Entry>, ApiError>>,
        starts: Vec<Start>,
    ) -> Result<Vec<RuntimeInfo>, ApiError> {
        let entries = obtained.into_iter().collect::<Result<Vec<_>, _>>()?;
        let pairs = entries.into_iter().zip(starts);
        let infos = join_all(pairs.map(|(entry, start)| self.started(entry, start))).await;
        infos.into_iter().collect()
    }

    /// Stops sandboxes. Those that are left over pause as any that is idle.
    async fn stop_all(&self, entries: Vec<Arc<Entry>>) {
        let stopping = entries
            .into_iter()
            .map(|entry| self.change(entry, DesiredState::Stopped));
        if timeout(CLEANUP_TIMEOUT, join_all(stopping)).await.is_err() {
            tracing::debug!("cannot stop all sandboxes of a failed start");
        }
    }
}
