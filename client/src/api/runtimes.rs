//! Start, look up, pause, resume and stop.

use serde::Deserialize;
use serde_json::json;

use super::{Client, Repeat, missing};
use crate::progress::Progress;
use crate::runtime_info::RuntimeInfo;
use crate::{Error, Sandbox, StartRequest};

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

    /// Requests a pause, which releases the compute and keeps the files; [`Client::wait_paused`] waits
    /// until they are saved.
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
