//! Waits for a start and for a pause.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::changes::Changes;
use crate::progress::{Progress, RuntimeStatus};
use crate::runtime_info::{RuntimeInfo, Status};
use crate::{Error, Sandbox};

impl Client {
    /// Waits until a sandbox answers requests, at most `ready_timeout` of the settings, and reports each
    /// step once.
    pub async fn wait_ready(
        &self,
        mut info: RuntimeInfo,
        report: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Sandbox, Error> {
        let limit = self.settings().ready_timeout;
        let deadline = Instant::now() + limit;
        let (mut last, mut changes) = (None, None);
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
                _ if Instant::now() > deadline => return Err(late("start", &info, limit)),
                _ => self.next_change(&mut changes, &info).await,
            }
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

    /// Waits until a pause is complete, at most `ready_timeout` of the settings. `persisted` of the result
    /// is what it has kept; `status` has another word if the pause was ended meanwhile.
    pub async fn wait_paused(&self, mut info: RuntimeInfo) -> Result<RuntimeInfo, Error> {
        let limit = self.settings().ready_timeout;
        let deadline = Instant::now() + limit;
        let mut changes = None;
        while info.pausing {
            if Instant::now() > deadline {
                return Err(late("pause", &info, limit));
            }
            self.next_change(&mut changes, &info).await;
            info = self.runtime(&info.runtime_id).await?;
        }
        Ok(info)
    }

    /// Waits until the sandbox may have changed. A stream is opened only if there is something to wait
    /// for.
    async fn next_change(&self, changes: &mut Option<Changes>, info: &RuntimeInfo) {
        let changes = changes.get_or_insert_with(|| Changes::new(self, &info.runtime_id));
        changes.next().await;
    }
}

fn late(verb: &str, info: &RuntimeInfo, after: Duration) -> Error {
    Error::Timeout {
        what: format!("the {verb} of sandbox {}", info.runtime_id),
        after,
        state: info.explanation(),
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
