//! `GET /events`: changes of the caller's sandboxes and image builds as server-sent events (HTML,
//! section 9.2), from a list or from a cursor of an earlier stream.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use crds::ImageBuild;
use crds::contract::header::API_KEY;
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use shared::index::{Cursor, Entry};

use super::auth::RateLimitedCaller;
use super::build::{BuildProgress, progress};
use super::endpoint::{Endpoint, SANDBOXES};
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared};
use crate::events::{Backlog, Describe, EventStream, KeyCheck, Scope};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells nginx not to collect the response.
const NOT_BUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

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
    let key = headers.get(API_KEY).and_then(|key| key.to_str().ok());
    let key = KeyCheck::new(&api.tenants, key.unwrap_or_default(), &tenant.name);
    let connection = subscription.connection();
    let events = EventStream::new(subscription, backlog, key, describe);
    let mut response = response(events);
    response.extensions_mut().insert(connection);
    Ok(response)
}

/// Reads the cursor. A text that is none, as that of another version, begins with a list.
fn cursor(headers: &HeaderMap, after: Option<&str>) -> Option<Cursor> {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    last.filter(|id| !id.is_empty()).or(after)?.parse().ok()
}

fn response(events: EventStream) -> Response {
    let parts = stream::unfold(events, async |mut events| {
        let part = events.next().await?;
        Some((Ok::<_, Infallible>(part), events))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        NOT_BUFFERED,
    ];
    (headers, axum::body::Body::from_stream(parts)).into_response()
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
