//! `GET /runtime/{runtime_id}/logs`: the output of a sandbox as server-sent events (HTML, section
//! 9.2), from its last lines or from a cursor of an earlier stream.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use futures::stream;
use http::HeaderMap;
use serde::Deserialize;

use super::auth::RateLimitedCaller;
use super::endpoint::{Endpoint, SANDBOXES};
use super::event_stream::{api_key, last_event_id, response};
use super::{ApiError, Shared};
use crate::events::KeyCheck;
use crate::logs::{LogRequest, MAX_TAIL};

const DEFAULT_TAIL: u32 = 100;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "GET", "/runtime/{runtime_id}/logs", get(logs))
        .documented(
            "streamLogs",
            "Streams the output of a sandbox as server-sent events: line, with time and text, and \
             end, with the reason. The id of an event is a cursor for the next stream in the header \
             Last-Event-ID, also on another replica. Without end, the stream was cut: ask again.",
        )
        .optional_query(
            "tail",
            "Lines before the present end, 0 to 5000; 100 without it.",
        )
        .optional_query("follow", "true: sends further lines as they are written.")
        .optional_query(
            "previous",
            "true: the run before the last restart of the container. Not with follow.",
        )
        .event_stream()
        .errors(&[400, 401, 404, 429, 503])
}

#[derive(Debug, Deserialize)]
struct LogsQuery {
    tail: Option<u32>,
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    previous: bool,
}

impl LogsQuery {
    fn into_request(self, headers: &HeaderMap) -> Result<LogRequest, ApiError> {
        let tail = self.tail.unwrap_or(DEFAULT_TAIL);
        if tail > MAX_TAIL {
            let text = format!("tail must not exceed {MAX_TAIL}");
            return Err(ApiError::bad_request(text));
        }
        if self.follow && self.previous {
            return Err(ApiError::bad_request(
                "a previous run has ended, so it cannot be followed",
            ));
        }
        Ok(LogRequest {
            tail,
            follow: self.follow,
            previous: self.previous,
            // A text that is none, as that of another version, begins with the tail.
            after: last_event_id(headers).and_then(|id| id.parse().ok()),
        })
    }
}

async fn logs(
    State(api): Shared,
    caller: RateLimitedCaller,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<LogsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = path?;
    let Query(query) = query?;
    let request = query.into_request(&headers)?;
    let entry = api.find_owned(&caller.tenant, &id).await?;
    let key = KeyCheck::new(&api.tenants, api_key(&headers), &caller.tenant.name);
    let log = api.logs.open(&entry, request, key)?;
    let connection = log.connection();
    let parts = stream::unfold(log, async |mut log| {
        let part = log.next().await?;
        Some((part, log))
    });
    Ok(response(parts, connection))
}
