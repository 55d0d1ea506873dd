//! `GET /build_logs`: the log of a full build as an event stream (HTML, section 9.2), from its
//! beginning to its end.

use std::convert::Infallible;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures::stream::{self, Stream};
use tokio::sync::mpsc;

use super::auth::Poller;
use super::build::{BuildProgress, progress};
use super::endpoint::{Endpoint, IMAGES};
use super::image::BuildStatusQuery;
use super::{ApiError, Shared};
use crate::builds::logs::LogPart;

/// Event with the last state of the build, as `/build_status` returns it.
const END: &str = "end";

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(IMAGES, "GET", "/build_logs", get(build_logs))
        .documented(
            "getBuildLogs",
            "Streams the log of a build as server-sent events, one per line. The last one is named \
             end and has the status of the build. Without it, the stream was cut: ask again.",
        )
        .query("build_id", "Id of the build.", false)
        .event_stream()
        .errors(&[400, 401, 404, 503])
}

async fn build_logs(
    State(api): Shared,
    Poller(tenant): Poller,
    query: Result<Query<BuildStatusQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let Query(query) = query?;
    let followed = api.builds.follow_log(&tenant, &query.id()?).await?;
    let parts = followed.ok_or(ApiError::UnknownBuild)?;
    Ok(Sse::new(events(parts)).keep_alive(KeepAlive::default()))
}

fn events(parts: mpsc::Receiver<LogPart>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(parts, async |mut parts| {
        let event = match parts.recv().await? {
            LogPart::Line(line) => Event::default().data(line),
            LogPart::End(build) => {
                let progress =
                    build.map_or_else(BuildProgress::cancelled, |build| progress(&build));
                let text = serde_json::to_string(&progress).unwrap_or_default();
                Event::default().event(END).data(text)
            }
        };
        Some((Ok(event), parts))
    })
}
