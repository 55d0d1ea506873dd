//! Finds sandboxes by id or session: in the index, and by a live lookup where another replica may
//! know more. A failed lookup is never reported as missing: clients take that for the end of the
//! sandbox.

use std::sync::Arc;

use crds::names;
use tokio::time::sleep;

use super::{INDEX_CATCH_UP_TIMEOUT, SandboxError, Sandboxes};
use crate::runtime_status::is_ended;
use shared::index::Entry;

/// Maximum number of epochs looked up per call. Other replicas start one at a time.
const MAX_EPOCH_LOOKUPS: usize = 4;

impl Sandboxes {
    /// Finds the sandbox of a runtime id, of any tenant.
    pub(crate) async fn find(&self, runtime_id: &str) -> Result<Arc<Entry>, SandboxError> {
        if let Some(entry) = self.index.by_runtime_id(runtime_id) {
            return Ok(self.confirm(entry).await);
        }
        if !names::is_runtime_id(runtime_id) {
            return Err(SandboxError::NotFound);
        }
        let may_look_up = self.lookup_limiter.allows_id(runtime_id);
        if may_look_up {
            // Objects that the API created have their id as name.
            let found = self.look_up(runtime_id).await?;
            if let Some(entry) = found.filter(|entry| entry.runtime_id == runtime_id) {
                return Ok(entry);
            }
            self.lookup_limiter.record_missing(runtime_id);
        } else {
            sleep(INDEX_CATCH_UP_TIMEOUT).await;
        }
        // Others have other names, so only a complete index shows that there is none.
        self.synced().await?;
        match self.index.by_runtime_id(runtime_id) {
            Some(entry) => Ok(entry),
            None if may_look_up => Err(SandboxError::NotFound),
            None => Err(self.not_found_or_unavailable()),
        }
    }

    /// Finds the newest sandbox of a session.
    pub(crate) async fn find_session(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<Arc<Entry>, SandboxError> {
        // An incomplete index may lack the newest epoch.
        self.synced().await?;
        if let Some(entry) = self.known_session(tenant, session) {
            let entry = self.confirm(entry).await;
            return Ok(self.newest_after(entry).await);
        }
        if !self.lookup_limiter.allows_session() {
            sleep(INDEX_CATCH_UP_TIMEOUT).await;
            let known = self.known_session(tenant, session);
            return known.ok_or_else(|| self.not_found_or_unavailable());
        }
        // Only a first epoch can be unknown: a later one follows a tombstone, which the index has.
        let first = self.session_runtime_id(tenant, session, 0);
        let found = self.look_up(&first).await?;
        match found.filter(|entry| entry.runtime_id == first) {
            Some(entry) => Ok(self.newest_after(entry).await),
            None => Err(SandboxError::NotFound),
        }
    }

    /// Confirms a just changed entry: another replica may have changed it again. Falls back to it.
    async fn confirm(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let recent = self
            .index
            .changed_within(&entry.key, INDEX_CATCH_UP_TIMEOUT);
        if !recent || !self.is_in_api_namespace(&entry) || !self.lookup_limiter.allows_session() {
            return entry;
        }
        match self.look_up(&entry.key.name).await {
            Ok(Some(found)) if found.uid == entry.uid => found,
            _ => entry,
        }
    }

    /// Confirms an entry before its address is used, while the watch fails or is silent: the address
    /// may belong to another Pod by now. While the API server is away, returns it unchanged.
    pub(crate) async fn confirm_address(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        if !self.freshness.is_stale() {
            return Some(entry);
        }
        let confirmation = self.lookup_limiter.confirmation(&entry.key);
        let look_up = async || {
            if self.lookup_limiter.allows_confirmation() {
                // The result is in the index.
                let _ = self.look_up_key(&entry.key).await;
            }
        };
        confirmation.get_or_init(look_up).await;
        let known = self.index.get(&entry.key);
        known.filter(|known| known.uid == entry.uid)
    }

    /// As [`Sandboxes::find_session`], without a live lookup.
    pub(crate) fn known_session(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let entry = self.index.by_session(tenant, session)?;
        self.is_in_api_namespace(&entry).then_some(entry)
    }

    /// Fails if the index may lack objects that exist.
    pub(crate) fn ensure_index_current(&self) -> Result<(), SandboxError> {
        match self.not_found_or_unavailable() {
            SandboxError::NotFound => Ok(()),
            unavailable => Err(unavailable),
        }
    }

    /// Returns the error for an object that the index lacks and that was not looked up.
    fn not_found_or_unavailable(&self) -> SandboxError {
        if self.lookup_limiter.api_answered_recently() && !self.freshness.is_stale() {
            SandboxError::NotFound
        } else {
            SandboxError::LookupUnavailable
        }
    }

    /// Finds the newest sandbox of the entry's session: after the end of one, another replica may
    /// have started the next. Falls back to the entry itself.
    async fn newest_after(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let mut newest = entry;
        for _ in 0..MAX_EPOCH_LOOKUPS {
            match self.next_epoch(&newest).await {
                Some(next) => newest = next,
                None => break,
            }
        }
        newest
    }

    async fn next_epoch(&self, entry: &Entry) -> Option<Arc<Entry>> {
        let session = entry.session().filter(|_| is_ended(entry))?;
        let epoch = session.epoch.checked_add(1)?;
        let next = self.session_runtime_id(&session.tenant, &session.id, epoch);
        if !self.lookup_limiter.allows_next_epoch(&next) {
            return None;
        }
        let found = self.look_up(&next).await.ok().flatten();
        let found = found.filter(|found| found.session().is_some_and(|s| s.epoch == epoch));
        if found.is_none() {
            self.lookup_limiter.record_missing(&next);
        }
        found
    }
}
