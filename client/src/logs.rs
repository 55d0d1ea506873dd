//! Output of a sandbox: `GET /runtime/{runtime_id}/logs`, continued when the connection breaks.

use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::api::Repeat;
use crate::backoff::Backoff;
use crate::events::NO_PATH;
use crate::events::sse::EventReader;
use crate::{Client, Error};

/// The gateway answers within ten seconds.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);
/// Time for which a broken stream is opened again.
const RECOVERY_LIMIT: Duration = Duration::from_mins(5);

/// Part of the output of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Lines before the present end, at most 5000; by default 100.
    pub tail: Option<u32>,
    /// Further lines as they are written.
    pub follow: bool,
    /// The run before the last restart of the container; not with `follow`.
    pub previous: bool,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct LogLine {
    /// Time at which the node received it, as far as it is known.
    pub time: Option<Timestamp>,
    /// Text without the end of the line, at most 16 KiB. Not trusted: it may have control characters.
    pub text: String,
    /// The line was longer.
    #[serde(default)]
    pub cut: bool,
}

/// Reason for the end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogEnd {
    /// All lines up to now; the log was not followed.
    Complete,
    /// There is no Pod yet; the log was not followed.
    Starting,
    Paused,
    Stopped,
    Failed,
    /// Another Pod has replaced the one of the log: the next event begins with its log.
    Replaced,
    /// The cluster does not give the log.
    Unavailable,
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// One event of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    Line(LogLine),
    End(LogEnd),
}

/// Log of a sandbox. Opens itself again after the last line that it returned.
#[derive(Debug)]
pub struct LogStream {
    client: Client,
    runtime_id: String,
    options: LogOptions,
    cursor: Option<String>,
    reader: Option<EventReader>,
}

#[derive(Deserialize)]
struct End {
    reason: LogEnd,
}

impl Client {
    /// Opens the log of a sandbox. [`Error::Unsupported`] if the gateway has no logs.
    pub async fn logs(&self, runtime_id: &str, options: LogOptions) -> Result<LogStream, Error> {
        let mut stream = LogStream {
            client: self.clone(),
            runtime_id: runtime_id.into(),
            options,
            cursor: None,
            reader: None,
        };
        stream.open().await?;
        Ok(stream)
    }
}

impl LogStream {
    /// Returns the next event. After a broken connection the stream goes on with the next line; an
    /// error if it cannot be opened within five minutes.
    pub async fn next(&mut self) -> Result<LogEvent, Error> {
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
            let raw = match reader.next().await {
                Ok(Some(raw)) => raw,
                Err(error @ Error::Protocol(..)) => return Err(error),
                Ok(None) | Err(_) => {
                    self.reader = None;
                    // A gateway that ends each stream at once is not asked without pause.
                    if !backoff.wait().await {
                        return Err(Error::Unavailable("the log is cut at once".into()));
                    }
                    continue;
                }
            };
            let invalid = |error: serde_json::Error| {
                Error::Protocol(self.client.url().into(), format!("{}: {error}", raw.name))
            };
            match raw.name.as_str() {
                "line" => {
                    let line = serde_json::from_str(&raw.data).map_err(invalid)?;
                    self.cursor = raw.id.or(self.cursor.take());
                    return Ok(LogEvent::Line(line));
                }
                "end" => {
                    let end: End = serde_json::from_str(&raw.data).map_err(invalid)?;
                    self.reader = None;
                    return Ok(LogEvent::End(end.reason));
                }
                _ => {}
            }
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        let LogOptions {
            tail,
            follow,
            previous,
        } = self.options;
        let tail = tail.map(|tail| tail.to_string());
        let mut query = vec![
            ("follow", if follow { "true" } else { "false" }),
            ("previous", if previous { "true" } else { "false" }),
        ];
        query.extend(tail.iter().map(|tail| ("tail", tail.as_str())));
        let path = ["runtime", &self.runtime_id, "logs"];
        let request = || {
            let request = self.client.request(Method::GET, &path, &query);
            match &self.cursor {
                Some(cursor) => request.header("Last-Event-ID", cursor),
                None => request,
            }
        };
        let sent = timeout(OPEN_TIMEOUT, self.client.send(Repeat::Temporary, request)).await;
        let sent = sent.map_err(|_| Error::Unavailable("no answer to /logs".into()))?;
        let response = sent.map_err(|error| self.explain(error))?;
        self.reader = Some(EventReader::new(response));
        Ok(())
    }

    fn explain(&self, error: Error) -> Error {
        let Error::Rejected { status, detail, .. } = &error else {
            return error;
        };
        match *status {
            StatusCode::NOT_FOUND if detail == NO_PATH => {
                Error::Unsupported("the gateway has no logs".into())
            }
            StatusCode::NOT_FOUND => Error::NotFound(format!("sandbox {}", self.runtime_id)),
            _ => error,
        }
    }
}
