//! `GET /sessions/{session_id}`: the newest runtime of a session. Clients call it before a start;
//! SDK clients poll it.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use super::auth::Poller;
use super::endpoint::{Endpoint, Tag};
use super::info::RuntimeInfo;
use super::{ApiError, Shared};
use crate::sandboxes::SandboxError;

/// Path before the session id.
pub(super) const PATH: &str = "/sessions/";

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/sessions/{*session_id}", session)
        .documented(
            Tag::Sandboxes,
            "getSession",
            "Returns the newest sandbox of a session.",
        )
        .response::<RuntimeInfo>(200)
        .errors(&[400, 401, 404, 503])
}

async fn session(
    State(api): Shared,
    Poller(tenant): Poller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let Path(id) = path?;
    let mut found = api.sandboxes.find_session(&tenant.name, &id).await;
    if matches!(found, Err(SandboxError::NotFound)) && id.ends_with('/') {
        // A base URL or a client may have added slashes to the path.
        let id = id.trim_end_matches('/');
        found = api.sandboxes.find_session(&tenant.name, id).await;
    }
    let entry = found.map_err(|error| match error {
        SandboxError::NotFound => ApiError::UnknownSession,
        other => other.into(),
    })?;
    let info = api.info(&entry).ok_or(ApiError::UnknownSession)?;
    Ok(Json(info))
}
