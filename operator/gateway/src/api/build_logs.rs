//! `GET /build_logs`: the log of a full build as an event stream (HTML, section 9.2), from its
//! beginning to its end, or until the API key is revoked.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures::stream::{self, Stream};
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use super::auth::Poller;
use super::build::{BuildProgress, progress};
use super::endpoint::{Endpoint, IMAGES};
use super::event_stream::api_key;
use super::image::BuildStatusQuery;
use super::{ApiError, Shared};
use crate::builds::logs::LogPart;
use crate::events::KeyCheck;

/// Event with the last state of the build, as `/build_status` returns it.
const END: &str = "end";
/// Interval of checks of the API key, which may expire.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Parts of a log, as long as the API key is valid.
struct CheckedParts {
    parts: mpsc::Receiver<LogPart>,
    key: KeyCheck,
    tick: Pin<Box<Sleep>>,
}

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
    headers: HeaderMap,
    query: Result<Query<BuildStatusQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let Query(query) = query?;
    let key = KeyCheck::new(&api.tenants, api_key(&headers), &tenant.name);
    let followed = api.builds.follow_log(&tenant, &query.id()?).await?;
    let parts = followed.ok_or(ApiError::UnknownBuild)?;
    let parts = CheckedParts::new(parts, key);
    Ok(Sse::new(events(parts)).keep_alive(KeepAlive::default()))
}

fn events(parts: CheckedParts) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(parts, async |mut parts| {
        let event = match parts.next().await? {
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

impl CheckedParts {
    fn new(parts: mpsc::Receiver<LogPart>, key: KeyCheck) -> Self {
        let tick = Box::pin(sleep(KEY_CHECK_INTERVAL));
        Self { parts, key, tick }
    }

    /// Returns the next part; `None` at the end of the log or of the validity of the key.
    async fn next(&mut self) -> Option<LogPart> {
        loop {
            tokio::select! {
                biased;
                () = self.key.changed() => {}
                () = &mut self.tick => self.tick.as_mut().reset(Instant::now() + KEY_CHECK_INTERVAL),
                part = self.parts.recv() => return part,
            }
            if !self.key.is_valid() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::tenants::Tenants;

    use super::*;

    const KEY: &str = "tenant-key";

    /// A log that goes on, for the key.
    fn open(tenants: &Tenants) -> (mpsc::Sender<LogPart>, CheckedParts) {
        let (sender, parts) = mpsc::channel(1);
        let key = KeyCheck::new(tenants, KEY, "a");
        (sender, CheckedParts::new(parts, key))
    }

    fn records(keys: &[(&str, &str)]) -> Vec<u8> {
        let record = |(name, key): &(&str, &str)| {
            let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
            let hash = data_encoding::HEXLOWER.encode(hash.as_ref());
            serde_json::json!({"name": name, "sha256": hash})
        };
        let records: Vec<_> = keys.iter().map(record).collect();
        serde_json::to_vec(&records).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn log_ends_when_its_key_is_revoked() {
        let tenants = Tenants::pending();
        tenants.replace(&records(&[("a", KEY)])).unwrap();
        let (sender, mut log) = open(&tenants);
        sender.send(LogPart::Line("line".into())).await.unwrap();
        // Another key does not matter.
        tenants
            .replace(&records(&[("a", KEY), ("b", "other")]))
            .unwrap();
        assert!(matches!(log.next().await, Some(LogPart::Line(_))));
        tenants.replace(&records(&[("b", "other")])).unwrap();
        assert!(log.next().await.is_none());
        assert!(!sender.is_closed(), "the log itself goes on");
    }
}
