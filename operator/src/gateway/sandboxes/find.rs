//! How a sandbox is found by its id or its session: in the index, and in the API server where
//! another replica may know more. What could not be looked up is never said to be missing: clients
//! take that for the end of the sandbox.

use std::sync::Arc;

use crds::names;
use tokio::time::sleep;

use super::strangers::NEWS;
use super::{SandboxError, Sandboxes};
use crate::gateway::api::info::{Lifecycle, derive};
use crate::index::Entry;

/// The resource whose watch feeds the index.
const SANDBOXES: &str = "sandboxes";
/// Most epochs that are looked up for one question. Other replicas begin one at a time.
const EPOCHS: usize = 4;

impl Sandboxes {
    /// The sandbox of a runtime id, whoever it belongs to.
    pub async fn find(&self, runtime_id: &str) -> Result<Arc<Entry>, SandboxError> {
        if let Some(entry) = self.index.by_runtime_id(runtime_id) {
            return Ok(entry);
        }
        if !names::is_runtime_id(runtime_id) {
            return Err(SandboxError::NotFound);
        }
        let may_ask = self.strangers.may_ask_id(runtime_id);
        if may_ask {
            // Objects of the API are named by their id.
            let found = self.look_up(runtime_id).await?;
            if let Some(entry) = found.filter(|entry| entry.runtime_id == runtime_id) {
                return Ok(entry);
            }
            self.strangers.note_missing(runtime_id);
        } else {
            sleep(NEWS).await;
        }
        // Others are not, so only a complete index knows that there is none.
        self.synced().await?;
        match self.index.by_runtime_id(runtime_id) {
            Some(entry) => Ok(entry),
            None if may_ask => Err(SandboxError::NotFound),
            None => Err(self.absence()),
        }
    }

    /// The newest sandbox of a session.
    pub async fn find_session(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<Arc<Entry>, SandboxError> {
        // In a part of the list, the newest epoch may be an old one.
        self.synced().await?;
        if let Some(entry) = self.known_session(tenant, session) {
            return Ok(self.newest_after(entry).await);
        }
        if !self.strangers.may_ask_session() {
            sleep(NEWS).await;
            let known = self.known_session(tenant, session);
            return known.ok_or_else(|| self.absence());
        }
        // Of what other replicas did a moment ago, only a first epoch can be unknown here:
        // a later one follows a tombstone that the index holds.
        let first = self
            .keys
            .session_runtime_id(&self.namespace, tenant, session, 0);
        let found = self.look_up(&first).await?;
        match found.filter(|entry| entry.runtime_id == first) {
            Some(entry) => Ok(self.newest_after(entry).await),
            None => Err(SandboxError::NotFound),
        }
    }

    /// As [`Sandboxes::find_session`], from the index alone.
    pub fn known_session(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let entry = self.index.by_session(tenant, session)?;
        self.is_ours(&entry).then_some(entry)
    }

    /// Fails if what the index lacks may exist all the same.
    pub fn check_current(&self) -> Result<(), SandboxError> {
        match self.absence() {
            SandboxError::NotFound => Ok(()),
            unsure => Err(unsure),
        }
    }

    /// What is said of something that the index lacks and the API server was not asked for.
    fn absence(&self) -> SandboxError {
        let falters = self.vitals.health.falters(SANDBOXES);
        if self.strangers.are_answered() && !falters {
            SandboxError::NotFound
        } else {
            SandboxError::Unsure
        }
    }

    /// The newest sandbox of the entry's session. After the end of one, another replica may have
    /// begun the next. Never fails: the old one is known at least.
    async fn newest_after(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let mut newest = entry;
        for _ in 0..EPOCHS {
            match self.next_epoch(&newest).await {
                Some(next) => newest = next,
                None => break,
            }
        }
        newest
    }

    async fn next_epoch(&self, entry: &Entry) -> Option<Arc<Entry>> {
        let session = entry.session().filter(|_| is_over(entry))?;
        let epoch = session.epoch.checked_add(1)?;
        let (tenant, id) = (&session.tenant, &session.id);
        let next = self
            .keys
            .session_runtime_id(&self.namespace, tenant, id, epoch);
        if !self.strangers.may_ask_next(&next) {
            return None;
        }
        let found = self.look_up(&next).await.ok().flatten();
        let found = found.filter(|found| found.session().is_some_and(|s| s.epoch == epoch));
        if found.is_none() {
            self.strangers.note_missing(&next);
        }
        found
    }
}

/// Whether a start of its session would make another sandbox.
pub fn is_over(entry: &Entry) -> bool {
    let lifecycle = derive(entry).lifecycle;
    matches!(lifecycle, Lifecycle::Stopped | Lifecycle::Error)
}
