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
use crate::gateway::sandboxes::SandboxError;
use crate::tenants::Tenant;

/// Most unknown ids that are looked up live: more are old, not new, and the index is right.
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
    look_up_unknown(&api, &tenant, &ids).await?;
    let answers = ids.iter().map(|id| {
        let entry = api.sandboxes.known_session(&tenant.name, id)?;
        api.info(&entry)
    });
    Ok(Json(answers.collect()))
}

/// Brings into the index what another replica may have made a moment ago.
async fn look_up_unknown(api: &Api, tenant: &Tenant, ids: &[String]) -> Result<(), ApiError> {
    api.sandboxes.synced().await?;
    let unknown = |id: &&String| api.sandboxes.known_session(&tenant.name, id).is_none();
    let unknown: Vec<_> = ids.iter().filter(unknown).cloned().collect();
    if unknown.len() > LOOKUPS {
        return Ok(());
    }
    let found: Vec<_> = stream::iter(unknown)
        .map(|id| async move { api.sandboxes.find_session(&tenant.name, &id).await })
        .buffer_unordered(LOOKUPS)
        .collect()
        .await;
    // While the API server is away, the known ones are still answered.
    for error in found.into_iter().filter_map(Result::err) {
        if !matches!(error, SandboxError::NotFound) {
            tracing::debug!(category = error.category(), "batch answered from the index");
        }
    }
    Ok(())
}
