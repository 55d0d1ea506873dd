//! `GET /sessions/batch?ids=a&ids=b`: one entry per id, in order, null where there is no runtime.
//! Clients trust a null only if length and order match.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use futures::{StreamExt as _, stream};

use super::auth::Poller;
use super::endpoint::Endpoint;
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared};
use crate::gateway::sandboxes::{SandboxError, is_over};
use crate::tenants::Tenant;

/// Most ids that are looked up live because they are unknown or over: more are old, not new, and the index is right.
const LOOKUPS: usize = 64;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/sessions/batch", batch)
        .says("The newest sandboxes of several sessions, in order, null where there is none.")
        .repeated_query("ids")
        .answers::<Vec<Option<RuntimeInfo>>>(200)
        .fails(&[400, 401, 503])
}

async fn batch(
    State(api): Shared,
    Poller(tenant): Poller,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Vec<Option<RuntimeInfo>>>, ApiError> {
    let Query(query) = query?;
    let wanted = query.into_iter().filter(|(name, _)| name == "ids");
    let ids: Vec<_> = wanted.map(|(_, id)| id).collect();
    look_up_doubtful(&api, &tenant, &ids).await?;
    let answers = ids.iter().map(|id| {
        let entry = api.sandboxes.known_session(&tenant.name, id)?;
        api.info(&entry)
    });
    Ok(Json(answers.collect()))
}

/// Brings into the index what another replica may have made a moment ago. Fails if an id may have a
/// runtime that nobody could be asked for: a null would end it.
async fn look_up_doubtful(api: &Api, tenant: &Tenant, ids: &[String]) -> Result<(), ApiError> {
    let sandboxes = &api.sandboxes;
    sandboxes.synced().await?;
    let doubtful = |id: &&String| {
        let known = sandboxes.known_session(&tenant.name, id);
        known.is_none_or(|entry| is_over(&entry))
    };
    let doubtful: Vec<_> = ids.iter().filter(doubtful).cloned().collect();
    if doubtful.len() > LOOKUPS {
        return check_many(api, tenant, &doubtful).await;
    }
    let found: Vec<_> = stream::iter(doubtful)
        .map(|id| async move { check(api, tenant, &id).await })
        .buffer_unordered(LOOKUPS)
        .collect()
        .await;
    found.into_iter().collect()
}

async fn check(api: &Api, tenant: &Tenant, id: &str) -> Result<(), ApiError> {
    match api.sandboxes.find_session(&tenant.name, id).await {
        Ok(_) | Err(SandboxError::NotFound) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Of very many, one is asked for. If there is an answer, the index is right about the others.
async fn check_many(api: &Api, tenant: &Tenant, ids: &[String]) -> Result<(), ApiError> {
    let unknown = |id: &&String| api.sandboxes.known_session(&tenant.name, id).is_none();
    let Some(one) = ids.iter().find(unknown) else {
        return Ok(());
    };
    check(api, tenant, one).await?;
    Ok(api.sandboxes.check_current()?)
}
