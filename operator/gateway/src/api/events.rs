//! `GET /events`: changes of the caller's sandboxes and image builds as server-sent events (HTML,
//! section 9.2), from a list or from a cursor of an earlier stream.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use crds::ImageBuild;
use futures::stream;
use http::HeaderMap;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use shared::index::{Cursor, Entry};

use super::auth::RateLimitedCaller;
use super::build::{BuildProgress, progress};
use super::endpoint::{Endpoint, SANDBOXES};
use super::event_stream::{api_key, last_event_id, response};
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared};
use crate::events::{Backlog, Describe, EventStream, KeyCheck, Scope};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", "/events", get(events))
        .documented(
            "streamEvents",
            "Streams changes as server-sent events: runtime (a sandbox without keys and logs, and its \
             change: listed or changed), deleted, build, and synced or resumed after what the \
             stream begins with. The id of an event is a cursor for the next stream, also on \
             another replica.",
        )
        .optional_query("runtime_id", "Only the events of this sandbox.")
        .optional_query(
            "after",
            "Cursor of an earlier stream, as in the header Last-Event-ID, which replaces it.",
        )
        .event_stream()
        .errors(&[400, 401, 404, 429, 503])
}

#[derive(Debug, Deserialize)]
struct EventsQuery {
    runtime_id: Option<String>,
    after: Option<String>,
}

/// Data of the event `runtime`.
#[derive(Serialize)]
struct RuntimeEvent<'a> {
    change: &'static str,
    at: Timestamp,
    #[serde(flatten)]
    info: &'a RuntimeInfo,
}

/// Data of the event `build`.
#[derive(Serialize)]
struct BuildEvent<'a> {
    build_id: &'a str,
    #[serde(flatten)]
    progress: &'a BuildProgress,
}

async fn events(
    State(api): Shared,
    caller: RateLimitedCaller,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let tenant = &caller.tenant;
    api.sandboxes.synced().await?;
    let runtime_id = query.runtime_id.filter(|id| !id.is_empty());
    if let Some(id) = &runtime_id {
        api.find_owned(tenant, id).await?;
    }
    let scope = Scope {
        tenant: tenant.name.clone(),
        namespace: api.config().namespace.clone(),
        runtime_id,
    };
    let describe: Arc<dyn Describe> = api.clone();
    // Before the state is read, so that no change is missed.
    let subscription = api.events.subscribe(&tenant.name, describe.clone())?;
    let since = cursor(&headers, query.after.as_deref());
    let backlog = Backlog::begin(&api.sandboxes.index, scope, since).await;
    let key = KeyCheck::new(&api.tenants, api_key(&headers), &tenant.name);
    let connection = subscription.connection();
    let events = EventStream::new(subscription, backlog, key, describe);
    let parts = stream::unfold(events, async |mut events| {
        let part = events.next().await?;
        Some((part, events))
    });
    Ok(response(parts, connection))
}

/// Reads the cursor. A text that is none, as that of another version, begins with a list.
fn cursor(headers: &HeaderMap, after: Option<&str>) -> Option<Cursor> {
    last_event_id(headers).or(after)?.parse().ok()
}

impl Describe for Api {
    fn runtime(&self, entry: &Entry, change: &'static str) -> Option<String> {
        let event = RuntimeEvent {
            change,
            at: Timestamp::now(),
            info: &self.public_info(entry)?,
        };
        serde_json::to_string(&event).ok()
    }

    fn build(&self, build: &ImageBuild) -> Option<String> {
        let event = BuildEvent {
            build_id: &build.name_any(),
            progress: &progress(build),
        };
        serde_json::to_string(&event).ok()
    }
}
