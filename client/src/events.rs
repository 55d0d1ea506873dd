//! Changes of sandboxes as they happen: `GET /events`, continued when the connection breaks.

pub(crate) mod resumed;
pub(crate) mod sse;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::runtime_info::RuntimeInfo;
use crate::{BuildStatus, Client, Error};
use resumed::{Endpoint, ResumedStream};
use sse::RawEvent;

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
    /// The connection broke and is open again: a list that had not ended begins anew, or changes
    /// follow.
    Reopened,
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
    stream: ResumedStream,
    /// Follows [`Event::Reopened`].
    held: Option<Event>,
}

impl Client {
    /// Opens the stream. [`Error::Unsupported`] if the gateway has no events.
    pub async fn events(&self, runtime_id: Option<&str>) -> Result<EventStream, Error> {
        let runtime_id = runtime_id.map(str::to_owned);
        let query = runtime_id.iter().map(|id| ("runtime_id", id.clone()));
        let endpoint = Endpoint {
            content: "events",
            path: vec!["events".into()],
            query: query.collect(),
            runtime_id,
        };
        let stream = ResumedStream::open(self, endpoint).await?;
        Ok(EventStream { stream, held: None })
    }
}

impl EventStream {
    /// Returns the next event. After a broken connection the stream goes on with the changes that were
    /// missed; an error if it cannot be opened within five minutes.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if let Some(event) = self.held.take() {
            return Ok(event);
        }
        loop {
            let raw = self.stream.next().await?;
            let event = parse(&raw).map_err(|error| self.stream.invalid(&raw.name, &error))?;
            if self.stream.take_reopened() {
                self.held = event;
                return Ok(Event::Reopened);
            }
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }
}

/// Events of later versions are `None`.
fn parse(raw: &RawEvent) -> serde_json::Result<Option<Event>> {
    Ok(Some(match raw.name.as_str() {
        "runtime" => Event::Runtime(serde_json::from_str(&raw.data)?),
        "deleted" => Event::Deleted(serde_json::from_str(&raw.data)?),
        "build" => Event::Build(serde_json::from_str(&raw.data)?),
        "synced" => Event::Synced,
        "resumed" => Event::Resumed,
        _ => return Ok(None),
    }))
}
