//! `GET /sessions/{session_id}`: the newest runtime of a session; asked before every start and
//! polled by SDK clients.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use super::auth::Poller;
use super::endpoint::Endpoint;
use super::info::RuntimeInfo;
use super::{ApiError, Shared};
use crate::gateway::sandboxes::SandboxError;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/sessions/{*session_id}", session)
        .says("The newest sandbox of a session.")
        .answers::<RuntimeInfo>(200)
        .fails(&[400, 401, 404, 503])
}

async fn session(
    State(api): Shared,
    Poller(tenant): Poller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let Path(id) = path?;
    let found = api.sandboxes.find_session(&tenant.name, &id).await;
    let entry = found.map_err(|error| match error {
        SandboxError::NotFound => ApiError::UnknownSession,
        other => other.into(),
    })?;
    let info = api.info(&entry).ok_or(ApiError::UnknownSession)?;
    Ok(Json(info))
}
