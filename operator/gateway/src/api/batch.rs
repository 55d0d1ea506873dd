//! `GET /sessions/batch?ids=a&ids=b`: one entry per id, in order, null where there is no runtime.
//! Clients take a null for the end of the sandbox, so it is only sent for certain.

use std::collections::{BTreeMap, HashSet};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use crds::sandbox::PodStatus;
use futures::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::Poller;
use super::endpoint::{Endpoint, SANDBOXES};
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared};
use crate::runtime_status::is_ended;
use crate::sandboxes::SandboxError;
use shared::tenants::Tenant;

pub(super) const PATH: &str = "/sessions/batch";
/// Maximum number of unknown or ended ids with a live lookup. Of more ids, one stands for all.
const MAX_LIVE_LOOKUPS: usize = 64;
/// Bytes of an answer. A target of 64 KiB has 11 000 ids, which may all be the same one.
const MAX_ANSWER_BYTES: usize = 8 << 20;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", PATH, get(batch))
        .documented(
            "getSessions",
            "Returns the newest sandboxes of several sessions, in order; null where there is none.",
        )
        .query("ids", "Session ids, as ids=a&ids=b.", true)
        .response::<Vec<Option<BatchEntry>>>(200)
        .errors(&[400, 401, 503])
}

/// Entry of an id that has a runtime or may have one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum BatchEntry {
    Known(Box<RuntimeInfo>),
    Unresolved(UnresolvedRuntime),
}

/// Runtime whose state is unknown.
#[derive(Debug, Serialize, JsonSchema)]
struct UnresolvedRuntime {
    runtime_id: Option<String>,
    session_id: String,
    url: Option<String>,
    session_api_key: Option<String>,
    status: UnknownStatus,
    pod_status: PodStatus,
    status_detail: &'static str,
    work_hosts: BTreeMap<String, u16>,
    restart_count: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum UnknownStatus {
    Unknown,
}

/// Ids that may have a runtime, because the API server could not be asked.
#[derive(Debug, Default)]
struct UnresolvedIds {
    ids: HashSet<String>,
    error: Option<SandboxError>,
}

async fn batch(
    State(api): Shared,
    Poller(tenant): Poller,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let wanted = query.into_iter().filter(|(name, _)| name == "ids");
    let ids: Vec<_> = wanted.map(|(_, id)| id).collect();
    api.sandboxes.synced().await?;
    let unresolved = resolve_unknown_ids(&api, &tenant, &ids).await;
    let mut has_known = false;
    let entries = ids.iter().map(|id| {
        let entry = api.batch_entry(&tenant, id, &unresolved);
        has_known |= matches!(entry, Some(BatchEntry::Known(_)));
        entry
    });
    let answer = write(entries)?;
    match unresolved.error {
        // Without a known entry, an error loses nothing, and every client understands it.
        Some(error) if !has_known => Err(error.into()),
        _ => Ok(([(CONTENT_TYPE, "application/json")], answer).into_response()),
    }
}

/// Writes the entries as they are made, so that no more than one of them is in memory.
fn write(entries: impl Iterator<Item = Option<BatchEntry>>) -> Result<Vec<u8>, ApiError> {
    let mut text = vec![b'['];
    for entry in entries {
        if text.len() > 1 {
            text.push(b',');
        }
        let written = serde_json::to_writer(&mut text, &entry);
        if written.is_err() || text.len() > MAX_ANSWER_BYTES {
            let limit = MAX_ANSWER_BYTES >> 20;
            let error = format!("the answer exceeds {limit} MiB: ask for fewer ids");
            return Err(ApiError::bad_request(error));
        }
    }
    text.push(b']');
    Ok(text)
}

// The newest clients show an unknown `status` as such (`docs/specs/runtime-api.md`, section 3.8);
// types and nulls are those that all clients accept.
impl UnresolvedRuntime {
    fn new(session: &str) -> Self {
        Self {
            runtime_id: None,
            session_id: session.to_owned(),
            url: None,
            session_api_key: None,
            status: UnknownStatus::Unknown,
            // With this value, every client goes by `status`.
            pod_status: PodStatus::NotFound,
            status_detail: "the Kubernetes API is not available for this lookup",
            work_hosts: BTreeMap::new(),
            restart_count: 0,
        }
    }
}

impl Api {
    fn batch_entry(
        &self,
        tenant: &Tenant,
        id: &str,
        unresolved: &UnresolvedIds,
    ) -> Option<BatchEntry> {
        let known = self.sandboxes.known_session(&tenant.name, id);
        match known.and_then(|entry| self.info(&entry)) {
            Some(info) => Some(BatchEntry::Known(Box::new(info))),
            None if unresolved.ids.contains(id) => {
                Some(BatchEntry::Unresolved(UnresolvedRuntime::new(id)))
            }
            None => None,
        }
    }
}

/// Looks up ids that another replica may have started a moment ago.
async fn resolve_unknown_ids(api: &Api, tenant: &Tenant, ids: &[String]) -> UnresolvedIds {
    let known = |id: &str| api.sandboxes.known_session(&tenant.name, id);
    let is_unresolved = |id: &&String| known(id).is_none_or(|entry| is_ended(&entry));
    let lookups: HashSet<_> = ids.iter().filter(is_unresolved).cloned().collect();
    if lookups.len() > MAX_LIVE_LOOKUPS {
        return look_up_one_of(api, tenant, lookups).await;
    }
    let checks =
        stream::iter(lookups).map(async |id| (look_up_session(api, tenant, &id).await, id));
    let checked: Vec<_> = checks.buffer_unordered(MAX_LIVE_LOOKUPS).collect().await;
    let mut unresolved = UnresolvedIds::default();
    for (checked, id) in checked {
        if let Err(error) = checked {
            unresolved.ids.insert(id);
            unresolved.error = Some(error);
        }
    }
    unresolved
}

async fn look_up_session(api: &Api, tenant: &Tenant, id: &str) -> Result<(), SandboxError> {
    let mut found = api.sandboxes.find_session(&tenant.name, id).await;
    if matches!(&found, Err(error) if error.is_outage()) {
        // One more attempt: an unresolved entry is not what clients expect.
        found = api.sandboxes.find_session(&tenant.name, id).await;
    }
    match found {
        Ok(_) | Err(SandboxError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Looks up one id for all. If the API server answers, the index is right about the others.
async fn look_up_one_of(api: &Api, tenant: &Tenant, ids: HashSet<String>) -> UnresolvedIds {
    let unknown = |id: &&String| api.sandboxes.known_session(&tenant.name, id).is_none();
    let Some(one) = ids.iter().find(unknown) else {
        return UnresolvedIds::default();
    };
    let looked_up = look_up_session(api, tenant, one).await;
    let error = looked_up
        .and_then(|()| api.sandboxes.ensure_index_current())
        .err();
    match error {
        Some(_) => UnresolvedIds { ids, error },
        None => UnresolvedIds::default(),
    }
}
