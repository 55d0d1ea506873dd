//! A stream of events that is opened again, after the last event that it returned, when it breaks.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::timeout;

use super::sse::{EventReader, RawEvent};
use crate::api::Repeat;
use crate::backoff::Backoff;
use crate::{Client, Error};

/// The gateway answers within ten seconds.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);
/// Answer of a gateway to a path that it does not have.
const NO_PATH: &str = "no such path";
/// Time for which a broken stream is opened again.
const RECOVERY_LIMIT: Duration = Duration::from_mins(5);

/// Address of a stream.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Content of the stream, for messages: events or logs.
    pub(crate) content: &'static str,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    /// Sandbox of the stream, if it is of one.
    pub(crate) runtime_id: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ResumedStream {
    pub(crate) client: Client,
    endpoint: Endpoint,
    cursor: Option<String>,
    reader: Option<EventReader>,
    /// The connection of the last event is not that of the event before.
    is_reopened: bool,
}

impl ResumedStream {
    /// [`Error::Unsupported`] if the gateway has no such streams.
    pub(crate) async fn open(client: &Client, endpoint: Endpoint) -> Result<Self, Error> {
        let mut stream = Self {
            client: client.clone(),
            endpoint,
            cursor: None,
            reader: None,
            is_reopened: false,
        };
        stream.connect().await?;
        Ok(stream)
    }

    /// Returns the next event; an error if the stream cannot be opened within five minutes.
    pub(crate) async fn next(&mut self) -> Result<RawEvent, Error> {
        let mut backoff = Backoff::new(RECOVERY_LIMIT);
        loop {
            let Some(reader) = &mut self.reader else {
                if let Err(error) = self.connect().await
                    && (!error.is_temporary() || !backoff.wait().await)
                {
                    return Err(error);
                }
                self.is_reopened = true;
                continue;
            };
            match reader.next().await {
                Ok(Some(raw)) => {
                    if raw.id.is_some() {
                        self.cursor.clone_from(&raw.id);
                    }
                    return Ok(raw);
                }
                Err(error @ Error::Protocol(..)) => return Err(error),
                Ok(None) | Err(_) => self.reader = None,
            }
            // A gateway that ends each stream at once is not asked without pause.
            if !backoff.wait().await {
                let text = format!("the stream of {} ends at once", self.endpoint.content);
                return Err(Error::Unavailable(text));
            }
        }
    }

    /// Returns whether the stream was opened again since the last call.
    pub(crate) fn take_reopened(&mut self) -> bool {
        std::mem::take(&mut self.is_reopened)
    }

    /// The server has said that the stream ends: the next event is that of another one.
    pub(crate) fn end(&mut self) {
        self.reader = None;
    }

    /// The data of an event has another form.
    pub(crate) fn invalid(&self, name: &str, error: &serde_json::Error) -> Error {
        Error::Protocol(self.client.url().into(), format!("event {name}: {error}"))
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let Endpoint {
            content,
            path,
            query,
            ..
        } = &self.endpoint;
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let query: Vec<_> = query
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let request = || {
            let request = self.client.request(Method::GET, &path, &query);
            match &self.cursor {
                Some(cursor) => request.header("Last-Event-ID", cursor),
                None => request,
            }
        };
        let sent = timeout(OPEN_TIMEOUT, self.client.send(Repeat::Temporary, request)).await;
        let sent = sent.map_err(|_| Error::Unavailable(format!("no answer to /{content}")))?;
        let response = sent.map_err(|error| self.explain(error))?;
        self.reader = Some(EventReader::new(response));
        Ok(())
    }

    fn explain(&self, error: Error) -> Error {
        let Error::Rejected { status, detail, .. } = &error else {
            return error;
        };
        if *status != StatusCode::NOT_FOUND {
            return error;
        }
        match &self.endpoint.runtime_id {
            Some(id) if detail != NO_PATH => Error::NotFound(format!("sandbox {id}")),
            _ => Error::Unsupported(format!("the gateway has no {}", self.endpoint.content)),
        }
    }
}
