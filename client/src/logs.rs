//! Output of a sandbox: `GET /runtime/{runtime_id}/logs`, continued when the connection breaks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::events::resumed::{Endpoint, ResumedStream};
use crate::{Client, Error};

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
pub struct LogStream(ResumedStream);

#[derive(Deserialize)]
struct End {
    reason: LogEnd,
}

impl Client {
    /// Opens the log of a sandbox. [`Error::Unsupported`] if the gateway has no logs.
    pub async fn logs(&self, runtime_id: &str, options: LogOptions) -> Result<LogStream, Error> {
        let LogOptions {
            tail,
            follow,
            previous,
        } = options;
        let mut query = vec![
            ("follow", follow.to_string()),
            ("previous", previous.to_string()),
        ];
        query.extend(tail.map(|tail| ("tail", tail.to_string())));
        let endpoint = Endpoint {
            content: "logs",
            path: vec!["runtime".into(), runtime_id.into(), "logs".into()],
            query,
            runtime_id: Some(runtime_id.into()),
        };
        Ok(LogStream(ResumedStream::open(self, endpoint).await?))
    }
}

impl LogStream {
    /// Returns the next event. After a broken connection the stream goes on with the next line; an
    /// error if it cannot be opened within five minutes.
    pub async fn next(&mut self) -> Result<LogEvent, Error> {
        loop {
            let raw = self.0.next().await?;
            let invalid = |error: serde_json::Error| self.0.invalid(&raw.name, &error);
            match raw.name.as_str() {
                "line" => {
                    let line = serde_json::from_str(&raw.data).map_err(invalid)?;
                    return Ok(LogEvent::Line(line));
                }
                "end" => {
                    let end: End = serde_json::from_str(&raw.data).map_err(invalid)?;
                    self.0.end();
                    return Ok(LogEvent::End(end.reason));
                }
                _ => {}
            }
        }
    }
}
