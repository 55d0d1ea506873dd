//! `GET /sessions/batch?ids=a&ids=b`: one entry per id, in order, null where there is no runtime.
//! Clients trust a null only if length and order match, and take it for the end of the sandbox.

mod unsure;

use std::collections::HashSet;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use futures::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::Poller;
use super::endpoint::Endpoint;
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared};
use crate::gateway::sandboxes::{SandboxError, is_over};
use crate::tenants::Tenant;
use unsure::UnsureRuntime;

/// Most ids that are looked up live because they are unknown or over: more are old, not new, and the index is right.
const LOOKUPS: usize = 64;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/sessions/batch", batch)
        .says("The newest sandboxes of several sessions, in order, null where there is none.")
        .repeated_query("ids")
        .answers::<Vec<Option<Place>>>(200)
        .fails(&[400, 401, 503])
}

/// What stands in the place of an id that has a runtime or may have one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Place {
    Known(Box<RuntimeInfo>),
    Unsure(UnsureRuntime),
}

/// Ids that may have a runtime, though nobody could be asked for it.
#[derive(Debug, Default)]
struct Unsure {
    ids: HashSet<String>,
    why: Option<SandboxError>,
}

async fn batch(
    State(api): Shared,
    Poller(tenant): Poller,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Vec<Option<Place>>>, ApiError> {
    let Query(query) = query?;
    let wanted = query.into_iter().filter(|(name, _)| name == "ids");
    let ids: Vec<_> = wanted.map(|(_, id)| id).collect();
    api.sandboxes.synced().await?;
    let unsure = look_up_doubtful(&api, &tenant, &ids).await;
    let answers = ids.iter().map(|id| api.place(&tenant, id, &unsure));
    let answers: Vec<_> = answers.collect();
    let tells = |place: &Option<Place>| matches!(place, Some(Place::Known(_)));
    match unsure.why {
        // Nothing is lost by a refusal, which every client understands.
        Some(error) if !answers.iter().any(tells) => Err(error.into()),
        _ => Ok(Json(answers)),
    }
}

impl Api {
    fn place(&self, tenant: &Tenant, id: &str, unsure: &Unsure) -> Option<Place> {
        let known = self.sandboxes.known_session(&tenant.name, id);
        match known.and_then(|entry| self.info(&entry)) {
            Some(info) => Some(Place::Known(Box::new(info))),
            None if unsure.ids.contains(id) => Some(Place::Unsure(UnsureRuntime::of(id))),
            None => None,
        }
    }
}

/// Brings into the index what another replica may have made a moment ago.
async fn look_up_doubtful(api: &Api, tenant: &Tenant, ids: &[String]) -> Unsure {
    let known = |id: &str| api.sandboxes.known_session(&tenant.name, id);
    let doubtful = |id: &&String| known(id).is_none_or(|entry| is_over(&entry));
    let doubtful: HashSet<_> = ids.iter().filter(doubtful).cloned().collect();
    if doubtful.len() > LOOKUPS {
        return check_many(api, tenant, doubtful).await;
    }
    let checks = stream::iter(doubtful).map(async |id| (check(api, tenant, &id).await, id));
    let checked: Vec<_> = checks.buffer_unordered(LOOKUPS).collect().await;
    let mut unsure = Unsure::default();
    for (checked, id) in checked {
        if let Err(error) = checked {
            unsure.ids.insert(id);
            unsure.why = Some(error);
        }
    }
    unsure
}

async fn check(api: &Api, tenant: &Tenant, id: &str) -> Result<(), SandboxError> {
    match api.sandboxes.find_session(&tenant.name, id).await {
        Ok(_) | Err(SandboxError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Of very many, one is asked for. If there is an answer, the index is right about the others.
async fn check_many(api: &Api, tenant: &Tenant, ids: HashSet<String>) -> Unsure {
    let unknown = |id: &&String| api.sandboxes.known_session(&tenant.name, id).is_none();
    let Some(one) = ids.iter().find(unknown) else {
        return Unsure::default();
    };
    let asked = check(api, tenant, one).await;
    let why = asked.and_then(|()| api.sandboxes.check_current()).err();
    match why {
        Some(_) => Unsure { ids, why },
        None => Unsure::default(),
    }
}
