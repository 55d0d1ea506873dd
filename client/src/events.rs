//! Changes of sandboxes as they happen: `GET /events`, continued when the connection breaks.

pub(crate) mod sse;

use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::api::Repeat;
use crate::backoff::Backoff;
use crate::runtime_info::RuntimeInfo;
use crate::{BuildStatus, Client, Error};
use sse::{EventReader, RawEvent};

/// The gateway answers within ten seconds.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);
/// Answer of a gateway to a path that it does not have.
pub(crate) const NO_PATH: &str = "no such path";
/// Time for which a broken stream is opened again.
const RECOVERY_LIMIT: Duration = Duration::from_mins(5);

/// One event.
#[derive(Debug, Clone)]
pub enum Event {
    /// A sandbox as it is now.
    Runtime(Box<RuntimeEvent>),
    /// The record of a sandbox is gone.
    Deleted(Deleted),
    Build(BuildEvent),
    /// End of the list that a stream begins with: drop what is known and was not listed.
    Synced,
    /// The stream continues an earlier one; changes follow.
    Resumed,
}

/// State of a sandbox.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RuntimeEvent {
    #[serde(flatten)]
    pub info: RuntimeInfo,
    pub change: ChangeKind,
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Part of the list at the beginning.
    Listed,
    Changed,
    #[serde(other)]
    Unknown,
}

/// A sandbox that is gone.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Deleted {
    pub runtime_id: String,
    #[serde(default)]
    pub session_id: String,
}

/// Progress of a build.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct BuildEvent {
    pub build_id: String,
    #[serde(flatten)]
    pub build: BuildStatus,
}

/// Events of all sandboxes of a key, or of one. Opens itself again after the last event that it
/// returned.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    runtime_id: Option<String>,
    cursor: Option<String>,
    reader: Option<EventReader>,
}

impl Client {
    /// Opens the stream. [`Error::Unsupported`] if the gateway has no events.
    pub async fn events(&self, runtime_id: Option<&str>) -> Result<EventStream, Error> {
        let mut stream = EventStream {
            client: self.clone(),
            runtime_id: runtime_id.map(Into::into),
            cursor: None,
            reader: None,
        };
        stream.open().await?;
        Ok(stream)
    }
}

impl EventStream {
    /// Returns the next event. After a broken connection the stream goes on with the changes that were
    /// missed; an error if it cannot be opened within five minutes.
    pub async fn next(&mut self) -> Result<Event, Error> {
        let mut backoff = Backoff::new(RECOVERY_LIMIT);
        loop {
            let Some(reader) = &mut self.reader else {
                if let Err(error) = self.open().await
                    && (!error.is_temporary() || !backoff.wait().await)
                {
                    return Err(error);
                }
                continue;
            };
            let read = reader.next().await;
            let Ok(Some(raw)) = read else {
                if let Err(error @ Error::Protocol(..)) = read {
                    return Err(error);
                }
                self.reader = None;
                // A gateway that ends each stream at once is not asked without pause.
                if !backoff.wait().await {
                    return Err(Error::Unavailable(
                        "the stream of events ends at once".into(),
                    ));
                }
                continue;
            };
            if raw.id.is_some() {
                self.cursor.clone_from(&raw.id);
            }
            if let Some(event) = parse(&raw, self.client.url())? {
                return Ok(event);
            }
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        let client = &self.client;
        let query: Vec<_> = self
            .runtime_id
            .iter()
            .map(|id| ("runtime_id", id.as_str()))
            .collect();
        let request = || {
            let request = client.request(Method::GET, &["events"], &query);
            match &self.cursor {
                Some(cursor) => request.header("Last-Event-ID", cursor),
                None => request,
            }
        };
        let sent = timeout(OPEN_TIMEOUT, client.send(Repeat::Temporary, request)).await;
        let sent = sent.map_err(|_| Error::Unavailable("no answer to /events".into()))?;
        let response = sent.map_err(|error| match (error, &self.runtime_id) {
            (
                Error::Rejected {
                    status: StatusCode::NOT_FOUND,
                    detail,
                    ..
                },
                Some(id),
            ) if detail != NO_PATH => Error::NotFound(format!("sandbox {id}")),
            (
                Error::Rejected {
                    status: StatusCode::NOT_FOUND,
                    ..
                },
                _,
            ) => Error::Unsupported("the gateway has no events".into()),
            (error, _) => error,
        })?;
        self.reader = Some(EventReader::new(response));
        Ok(())
    }
}

/// Events of later versions are `None`.
fn parse(raw: &RawEvent, url: &str) -> Result<Option<Event>, Error> {
    let invalid = |error: serde_json::Error| {
        Error::Protocol(url.into(), format!("event {}: {error}", raw.name))
    };
    Ok(Some(match raw.name.as_str() {
        "runtime" => Event::Runtime(serde_json::from_str(&raw.data).map_err(invalid)?),
        "deleted" => Event::Deleted(serde_json::from_str(&raw.data).map_err(invalid)?),
        "build" => Event::Build(serde_json::from_str(&raw.data).map_err(invalid)?),
        "synced" => Event::Synced,
        "resumed" => Event::Resumed,
        _ => return Ok(None),
    }))
}
