//! Start, look up, pause, resume and stop.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Client, Repeat, missing};
use crate::progress::{Progress, RuntimeStatus};
use crate::runtime_info::{RuntimeInfo, Status};
use crate::{Error, Sandbox, StartRequest};

/// First and longest pause between two polls of a start.
const INITIAL_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(1);
/// Sessions of one request for several; a request target may have 64 KiB.
const BATCH: usize = 64;

#[derive(Debug, Deserialize)]
struct List {
    runtimes: Vec<RuntimeInfo>,
}

impl Client {
    /// Starts the sandbox of a session, or returns the one that it has, resumed if it was paused.
    pub async fn start(&self, request: &StartRequest) -> Result<RuntimeInfo, Error> {
        self.post(&["start"], Repeat::Temporary, request).await
    }

    /// Starts, waits until requests are answered, and reports each step once.
    pub async fn start_and_wait(
        &self,
        request: &StartRequest,
        report: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Sandbox, Error> {
        let info = self.start(request).await?;
        self.wait_ready(info, report).await
    }

    /// Returns a sandbox by its id.
    pub async fn runtime(&self, id: &str) -> Result<RuntimeInfo, Error> {
        let found = self.get(&["runtime", id], &[]).await;
        found.map_err(|error| missing(error, || format!("sandbox {id}")))
    }

    /// Returns the newest sandbox of a session. `None` without one.
    pub async fn session(&self, session_id: &str) -> Result<Option<RuntimeInfo>, Error> {
        match self.get(&["sessions", session_id], &[]).await {
            Ok(info) => Ok(Some(info)),
            Err(error) => match missing(error, String::new) {
                Error::NotFound(_) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Returns the newest sandboxes of sessions, in their order, and `None` for those without one.
    pub async fn sessions(&self, ids: &[&str]) -> Result<Vec<Option<RuntimeInfo>>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH) {
            let query: Vec<_> = ids.iter().map(|id| ("ids", *id)).collect();
            let part: Vec<Option<RuntimeInfo>> = self.get(&["sessions", "batch"], &query).await?;
            if part.len() != ids.len() {
                let text = format!("{} entries for {} sessions", part.len(), ids.len());
                return Err(Error::Protocol(self.url().into(), text));
            }
            found.extend(part);
        }
        Ok(found)
    }

    /// Returns the sandboxes that start or run.
    pub async fn list(&self) -> Result<Vec<RuntimeInfo>, Error> {
        let list: List = self.get(&["list"], &[]).await?;
        Ok(list.runtimes)
    }

    /// Releases the compute and keeps the files.
    pub async fn pause(&self, id: &str) -> Result<RuntimeInfo, Error> {
        self.change("pause", id).await
    }

    /// Ends the sandbox and deletes its files.
    pub async fn stop(&self, id: &str) -> Result<RuntimeInfo, Error> {
        self.change("stop", id).await
    }

    /// Requests the end of a pause; [`Client::wait_ready`] waits for it.
    pub async fn resume(&self, id: &str) -> Result<RuntimeInfo, Error> {
        self.change("resume", id).await
    }

    /// Resumes and waits until requests are answered.
    pub async fn resume_and_wait(
        &self,
        id: &str,
        report: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Sandbox, Error> {
        let info = self.resume(id).await?;
        self.wait_ready(info, report).await
    }

    /// Waits until a sandbox answers requests, at most `ready_timeout` of the settings.
    pub async fn wait_ready(
        &self,
        mut info: RuntimeInfo,
        report: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Sandbox, Error> {
        let limit = self.settings().ready_timeout;
        let deadline = Instant::now() + limit;
        let (mut last, mut poll) = (None, INITIAL_POLL);
        loop {
            let step = Progress::of(&info);
            // Ready is reported when the server has answered over the public URL.
            let is_ready = step.status == RuntimeStatus::Ready;
            if !is_ready && last.as_ref() != Some(&step) {
                report(&step);
                last = Some(step);
            }
            match info.status {
                Status::Error => return Err(failed(&info)),
                Status::Paused => return Err(Error::Paused(info.runtime_id)),
                Status::Stopped => {
                    return Err(Error::NotFound(format!("sandbox {}", info.runtime_id)));
                }
                _ if is_ready => break,
                _ if Instant::now() > deadline => {
                    return Err(Error::Timeout {
                        what: format!("the start of sandbox {}", info.runtime_id),
                        after: limit,
                        state: info.explanation(),
                    });
                }
                _ => sleep(poll).await,
            }
            poll = (poll * 3 / 2).min(MAX_POLL);
            info = self.runtime(&info.runtime_id).await.inspect_err(|error| {
                report(&disconnected(&info, error));
            })?;
        }
        let sandbox = Sandbox::new(self.clone(), info);
        let alive = sandbox.wait_alive().await;
        alive.inspect_err(|error| report(&disconnected(sandbox.info(), error)))?;
        report(&Progress::of(sandbox.info()));
        Ok(sandbox)
    }

    /// A handle of a sandbox in any state. Its calls resume it if it is paused.
    pub fn sandbox(&self, info: RuntimeInfo) -> Sandbox {
        Sandbox::new(self.clone(), info)
    }

    async fn change(&self, verb: &str, id: &str) -> Result<RuntimeInfo, Error> {
        let changed = self
            .post(&[verb], Repeat::Temporary, &json!({"runtime_id": id}))
            .await;
        changed.map_err(|error| missing(error, || format!("sandbox {id}")))
    }
}

/// The error of a sandbox that was given up.
fn failed(info: &RuntimeInfo) -> Error {
    Error::SandboxFailed {
        runtime_id: info.runtime_id.clone(),
        detail: info.explanation(),
        log: info.pod_logs.clone(),
    }
}

fn disconnected(info: &RuntimeInfo, error: &Error) -> Progress {
    Progress {
        status: RuntimeStatus::ErrorRuntimeDisconnected,
        id: info.runtime_id.clone(),
        message: Some(error.to_string()),
    }
}
