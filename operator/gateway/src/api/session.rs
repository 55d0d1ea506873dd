//! Reads of single sandboxes and of the list of a caller.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::get;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::{Poller, RateLimitedCaller};
use super::endpoint::{Endpoint, SANDBOXES};
use super::info::RuntimeInfo;
use super::{ApiError, Shared};
use crate::runtime_status::{RuntimeStatus, is_running};
use crate::sandboxes::SandboxError;

/// Path before the session id.
pub(super) const PATH: &str = "/sessions/";

#[derive(Debug, Serialize, JsonSchema)]
struct List {
    runtimes: Vec<RuntimeInfo>,
    total: usize,
}

/// Field `idle_since` of all running sandboxes.
#[derive(Debug, Serialize, JsonSchema)]
struct IdleList {
    /// By runtime id.
    #[schemars(with = "BTreeMap<String, Option<String>>")]
    idle_since: BTreeMap<String, Option<Timestamp>>,
}

pub(super) fn list_endpoints() -> [Endpoint; 2] {
    let endpoint = |path| Endpoint::new(SANDBOXES, "GET", path, get(list)).response::<List>(200);
    [
        endpoint("/list").documented("listSandboxes", "Lists the live sandboxes of the caller."),
        // Path that clients of 2024 call.
        endpoint("/runtime/list").documented("listSandboxesOfOldClients", "Same as /list."),
    ]
}

/// Asked again and again by pages that follow the events: activity is no event.
pub(super) fn idle_endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", "/list/idle", get(list_idle))
        .documented(
            "listIdleSandboxes",
            "Returns idle_since of the running sandboxes of the caller, which no event tells.",
        )
        .response::<IdleList>(200)
}

/// Polled by V0 clients, which give up at the first status other than 200.
pub(super) fn runtime_endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", "/runtime/{runtime_id}", get(runtime))
        .documented("getSandbox", "Returns a sandbox by its id.")
        .response::<RuntimeInfo>(200)
        .errors(&[400, 401, 404, 503])
}

/// Clients call it before a start; SDK clients poll it.
pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", "/sessions/{*session_id}", get(session))
        .documented("getSession", "Returns the newest sandbox of a session.")
        .response::<RuntimeInfo>(200)
        .errors(&[400, 401, 404, 503])
}

/// The live sandboxes of the caller only, because clients count the entries.
async fn list(State(api): Shared, caller: RateLimitedCaller) -> Result<Json<List>, ApiError> {
    api.sandboxes.synced().await?;
    let sandboxes = api.sandboxes.of_tenant(&caller.tenant.name);
    let infos = sandboxes.iter().filter_map(|entry| api.info(entry));
    let is_live = |status| matches!(status, RuntimeStatus::Starting | RuntimeStatus::Running);
    let runtimes: Vec<_> = infos.filter(|info| is_live(info.status)).collect();
    Ok(Json(List {
        total: runtimes.len(),
        runtimes,
    }))
}

async fn list_idle(
    State(api): Shared,
    caller: RateLimitedCaller,
) -> Result<Json<IdleList>, ApiError> {
    api.sandboxes.synced().await?;
    let sandboxes = api.sandboxes.of_tenant(&caller.tenant.name);
    let running = sandboxes.iter().filter(|entry| is_running(entry));
    let idle_since = running.map(|entry| (entry.runtime_id.clone(), api.idle_since(entry)));
    Ok(Json(IdleList {
        idle_since: idle_since.collect(),
    }))
}

async fn runtime(
    State(api): Shared,
    Poller(tenant): Poller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let Path(id) = path?;
    let entry = api.find_owned(&tenant, &id).await?;
    let info = api.info(&entry).ok_or(ApiError::UnknownRuntime)?;
    Ok(Json(info))
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
