//! Task that copies the log of a sandbox to a client: first the tail, then lines as they are written,
//! until the Pod is gone. A log that breaks off is opened again from the last line.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crds::sandbox::Phase;
use futures::AsyncBufRead;
use serde::Serialize;
use serde_json::json;
use shared::index::{Entry, Key};
use shared::kubernetes::client::CallError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::cursor::{Cursor, KnownLines, Position};
use super::line::{Line, read_line};
use super::pod_log::{PodLog, advance};
use super::{LogRequest, Logs, MAX_TAIL};
use crate::events::ResponseAbort;
use crate::runtime_status::{RuntimeStatus, derive};

/// Time for a client to read an event.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Time without a line after which a log is opened again: its connection may be dead.
const SILENCE_LIMIT: Duration = Duration::from_mins(5);
/// Interval between two looks at the state of the sandbox.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Failures in a row after which the stream ends, about a minute.
const MAX_FAILURES: u32 = 14;

/// Reason for the end of a stream, in the event `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EndReason {
    /// All lines up to now were sent; the client does not follow.
    Complete,
    /// The sandbox has no Pod yet, and the client does not follow.
    Starting,
    Paused,
    Stopped,
    Failed,
    /// Another Pod has replaced the one of the log.
    Replaced,
    /// The log cannot be read now.
    Unavailable,
}

/// The client has gone, or reads nothing.
#[derive(Debug)]
pub(super) struct Gone;

/// State of the Pod of a sandbox.
#[derive(Debug, PartialEq, Eq)]
enum PodState {
    /// By its name.
    Named(String),
    Missing,
    Ended(EndReason),
}

#[derive(Debug)]
pub(super) struct Follower {
    logs: Arc<Logs>,
    key: Key,
    uid: String,
    request: LogRequest,
    /// Pod of the log.
    pod: String,
    position: Option<Position>,
    events: mpsc::Sender<Bytes>,
    connection: ResponseAbort,
}

impl Follower {
    pub(super) fn new(
        logs: Arc<Logs>,
        entry: &Entry,
        request: LogRequest,
        events: mpsc::Sender<Bytes>,
        connection: ResponseAbort,
    ) -> Self {
        Self {
            logs,
            key: entry.key.clone(),
            uid: entry.uid.clone(),
            request,
            pod: String::new(),
            position: None,
            events,
            connection,
        }
    }

    pub(super) async fn run(mut self) {
        if let Ok(reason) = self.copy_all().await {
            let end = format!("event: end\ndata: {}\n\n", json!({"reason": reason}));
            let _ = self.send(end).await;
        }
    }

    async fn copy_all(&mut self) -> Result<EndReason, Gone> {
        match self.wait_pod().await? {
            PodState::Named(pod) => self.pod = pod,
            PodState::Missing => return Ok(EndReason::Starting),
            PodState::Ended(EndReason::Failed) => return self.copy_failed().await,
            PodState::Ended(reason) => return Ok(reason),
        }
        if let Some(after) = self.request.after.take() {
            if after.pod == self.pod {
                self.position = Some(after.position);
            } else {
                // The client has seen the log of an earlier Pod, and nothing of this one.
                self.request.tail = MAX_TAIL;
            }
        }
        let log = self.pod_log();
        if !self.request.follow {
            return self.copy_stored(&log).await;
        }
        if self.position.is_none() {
            // Without a log yet, it is followed from its beginning.
            let _ = self.copy_tail(&log).await?;
        }
        self.follow(&log).await
    }

    fn pod_log(&self) -> PodLog {
        PodLog {
            pods: self.logs.pods.clone(),
            pod: self.pod.clone(),
            previous: self.request.previous,
        }
    }

    fn entry(&self) -> Option<Arc<Entry>> {
        let entry = self.logs.sandboxes.index.get(&self.key);
        entry.filter(|entry| entry.uid == self.uid)
    }

    fn pod_state(&self) -> PodState {
        self.entry()
            .map_or(PodState::Ended(EndReason::Stopped), |entry| {
                pod_state(&entry)
            })
    }

    /// Waits for a Pod, if the client follows.
    async fn wait_pod(&self) -> Result<PodState, Gone> {
        loop {
            let state = self.pod_state();
            if state != PodState::Missing || !self.request.follow {
                return Ok(state);
            }
            self.ensure_wanted()?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Copies the lines that exist, and follows none.
    async fn copy_stored(&mut self, log: &PodLog) -> Result<EndReason, Gone> {
        let read = match self.position {
            None => self.copy_tail(log).await?,
            Some(from) => match log.open(Some(from), false).await {
                Ok(opened) => self.copy(opened).await.map(|()| Ok(()))?,
                Err(error) => Err(error),
            },
        };
        Ok(match read {
            // The container has not started, or had no earlier run.
            Err(error) if !matches!(error.code(), Some(400 | 404)) => unavailable(&error),
            _ => EndReason::Complete,
        })
    }

    async fn copy_tail(&mut self, log: &PodLog) -> Result<Result<(), CallError>, Gone> {
        let (tail, position) = match log.tail(self.request.tail).await {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        for (line, position) in tail {
            self.position = position;
            self.send_line(&line).await?;
        }
        self.position = position;
        Ok(Ok(()))
    }

    async fn follow(&mut self, log: &PodLog) -> Result<EndReason, Gone> {
        let (mut failures, mut delay) = (0, INITIAL_BACKOFF);
        loop {
            let before = self.position;
            match log.open(self.position, true).await {
                Ok(opened) => self.copy(opened).await?,
                // The container has not started.
                Err(error) if error.code() == Some(400) => {}
                Err(error) => {
                    failures += 1;
                    if failures > MAX_FAILURES {
                        return Ok(unavailable(&error));
                    }
                }
            }
            if self.position != before {
                (failures, delay) = (0, INITIAL_BACKOFF);
            }
            if let Some(reason) = self.wait_end(delay).await? {
                return Ok(reason);
            }
            delay = (delay * 2).min(MAX_BACKOFF);
        }
    }

    /// Waits until the log has ended for good, at most for `limit`.
    async fn wait_end(&self, limit: Duration) -> Result<Option<EndReason>, Gone> {
        let deadline = Instant::now() + limit;
        loop {
            self.ensure_wanted()?;
            match self.pod_state() {
                PodState::Named(pod) if pod == self.pod => {}
                PodState::Named(_) | PodState::Missing => return Ok(Some(EndReason::Replaced)),
                PodState::Ended(reason) => return Ok(Some(reason)),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Copies the lines after the position, until the log ends or is silent for long.
    async fn copy(&mut self, mut log: impl AsyncBufRead + Unpin) -> Result<(), Gone> {
        let mut known = KnownLines::until(self.position);
        let must_skip = self.position.is_some();
        let mut has_new = !must_skip;
        while let Ok(Ok(Some(line))) = timeout(SILENCE_LIMIT, read_line(&mut log)).await {
            match line.time {
                Some(time) if known.includes(time) => continue,
                Some(_) => has_new = true,
                // Among lines that are known, a message is too.
                None if !has_new => continue,
                None => {}
            }
            self.position = advance(self.position, &line);
            self.send_line(&line).await?;
        }
        Ok(())
    }

    /// Copies the log of a failed sandbox: that of its Pod, or else the end that the controller kept.
    async fn copy_failed(&mut self) -> Result<EndReason, Gone> {
        let Some(entry) = self.entry() else {
            return Ok(EndReason::Failed);
        };
        if let Some(pod) = entry.status.pod_name.clone() {
            self.pod = pod;
            let after = self.request.after.take();
            let after = after.filter(|after| after.pod == self.pod);
            self.position = after.map(|after| after.position);
            let is_known = self.position.is_some();
            if is_known || self.copy_tail(&self.pod_log()).await?.is_ok() {
                return Ok(EndReason::Failed);
            }
        }
        let sealed = entry.status.sealed_log.as_ref();
        let (namespace, name) = (&self.key.namespace, &self.key.name);
        let keys = &self.logs.sandboxes.keys;
        let kept = sealed.and_then(|sealed| keys.open_log(namespace, name, sealed).ok());
        for text in kept.iter().flat_map(|kept| kept.lines()) {
            self.send_line(&Line::without_time(text)).await?;
        }
        Ok(EndReason::Failed)
    }

    async fn send_line(&self, line: &Line) -> Result<(), Gone> {
        let id = self.position.map_or_else(String::new, |position| {
            let pod = self.pod.clone();
            format!("id: {}\n", Cursor { position, pod })
        });
        // Serializing a line cannot fail.
        let data = serde_json::to_string(line).unwrap_or_default();
        self.send(format!("{id}event: line\ndata: {data}\n\n"))
            .await
    }

    async fn send(&self, event: String) -> Result<(), Gone> {
        let sent = self.events.send_timeout(event.into(), READ_TIMEOUT).await;
        sent.map_err(|_| {
            self.connection.abort();
            Gone
        })
    }

    fn ensure_wanted(&self) -> Result<(), Gone> {
        if self.events.is_closed() {
            Err(Gone)
        } else {
            Ok(())
        }
    }
}

fn unavailable(error: &CallError) -> EndReason {
    tracing::warn!(category = error.category(), %error, "cannot read the log of a sandbox");
    EndReason::Unavailable
}

fn pod_state(entry: &Entry) -> PodState {
    match derive(entry).lifecycle {
        RuntimeStatus::Paused => PodState::Ended(EndReason::Paused),
        RuntimeStatus::Stopped => PodState::Ended(EndReason::Stopped),
        RuntimeStatus::Error => PodState::Ended(EndReason::Failed),
        RuntimeStatus::Starting | RuntimeStatus::Running => match &entry.status.pod_name {
            // The Pod of an earlier run is on its way out.
            _ if is_outdated(entry) => PodState::Missing,
            Some(pod) => PodState::Named(pod.clone()),
            None => PodState::Missing,
        },
    }
}

/// Returns whether the status is that of a pause or failure which is over.
fn is_outdated(entry: &Entry) -> bool {
    let phase = entry.status.phase;
    matches!(phase, Phase::Pausing | Phase::Paused | Phase::Failed)
}
