//! Whether a request may go to its sandbox now, has to wait, or is answered here (design 6).
//!
//! A sandbox that was ready once and is away for a moment, or paused because it was idle, is waited
//! for: V0 clients hang for ever when such a moment is answered with 503 (runtime API spec 3.10).

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::{DesiredState, PauseReason, Phase};
use tokio::sync::SemaphorePermit;

use super::{Proxy, ProxyError, Route};
use crate::gateway::sandboxes::SandboxError;
use crate::index::Entry;
use crate::metrics::Raised;

/// How long the index may take to learn of a Pod that is gone, or of a crash of its server.
const NEWS_LIMIT: Duration = Duration::from_secs(2);
/// How long news of another replica may take to reach the index.
const NEWS: Duration = Duration::from_millis(300);

/// What the index says about a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Go,
    /// It comes back by itself.
    Hold,
    /// It comes back when it is asked to.
    Wake,
    Refuse(ProxyError),
}

impl Proxy {
    /// The entry of the sandbox that a request is for, if it has that port.
    pub(super) async fn find(&self, route: &Route) -> Result<Arc<Entry>, ProxyError> {
        let found = self.sandboxes.find(&route.id).await;
        let entry = found.map_err(|error| match error {
            SandboxError::NotFound => ProxyError::UnknownSandbox,
            _ => ProxyError::LookupFailed,
        })?;
        match entry.port(&route.port) {
            Some(_) => Ok(entry),
            None => Err(ProxyError::UnknownPort),
        }
    }

    /// The entry of a sandbox that is ready for a request, waited for if need be.
    pub(super) async fn admit(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, ProxyError> {
        match judge(&entry) {
            Verdict::Go => Ok(entry),
            Verdict::Hold | Verdict::Wake => self.hold(entry).await,
            Verdict::Refuse(ProxyError::Stopped) => Err(ProxyError::Stopped),
            Verdict::Refuse(_) => self.ask_live(entry).await,
        }
    }

    /// As [`Proxy::admit`], for a sandbox that has just failed with `error`: what the index says now
    /// is believed only if it is something new.
    pub(super) async fn admit_again(
        &self,
        failed: &Entry,
        error: ProxyError,
    ) -> Result<Arc<Entry>, ProxyError> {
        let news = |now: &Entry| judge(now) != Verdict::Go || has_moved(failed, now);
        let index = &self.sandboxes.index;
        let entry = index.wait(&failed.key, NEWS_LIMIT, news).await;
        let entry = entry.ok_or(ProxyError::UnknownSandbox)?;
        match judge(&entry) {
            Verdict::Go if has_moved(failed, &entry) => Ok(entry),
            Verdict::Go => Err(error),
            Verdict::Hold | Verdict::Wake => self.hold(entry).await,
            Verdict::Refuse(error) => Err(error),
        }
    }

    /// The last word on a sandbox that seems not to be ready: another replica may have told the
    /// client that it is, from news that this index does not have yet. Of many requests one asks the
    /// API server, and the others wait a moment for what the index hears.
    async fn ask_live(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, ProxyError> {
        let now = match self.questions.begin(&entry.key) {
            Some(_question) => self.sandboxes.refresh(entry.clone()).await,
            None => self.hear(&entry).await?,
        };
        let now = now.ok_or(ProxyError::UnknownSandbox)?;
        match judge(&now) {
            Verdict::Go => Ok(now),
            Verdict::Hold | Verdict::Wake => self.hold(now).await,
            Verdict::Refuse(error) => Err(error),
        }
    }

    async fn hear(&self, entry: &Entry) -> Result<Option<Arc<Entry>>, ProxyError> {
        let _place = self.place()?;
        let news = |now: &Entry| !matches!(judge(now), Verdict::Refuse(_));
        Ok(self.sandboxes.index.wait(&entry.key, NEWS, news).await)
    }

    /// Leave to wait for a sandbox.
    fn place(&self) -> Result<SemaphorePermit<'_>, ProxyError> {
        let place = self.places.try_acquire();
        place.map_err(|_| ProxyError::Crowded)
    }

    async fn hold(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, ProxyError> {
        let place = self.place()?;
        let index = &self.sandboxes.index;
        let limit = self.config.hold_limit;
        // It may have been paused only a moment before it came back, or while this request waits.
        let decided = |now: &Entry| match judge(now) {
            Verdict::Hold => false,
            Verdict::Wake => {
                self.wakes.wake(&self.sandboxes, now, limit);
                false
            }
            Verdict::Go | Verdict::Refuse(_) => true,
        };
        let held = Raised::new(&self.metrics.held);
        let entry = index.wait(&entry.key, limit, decided).await;
        drop((held, place));
        let entry = entry.ok_or(ProxyError::UnknownSandbox)?;
        match judge(&entry) {
            Verdict::Go => Ok(entry),
            Verdict::Hold | Verdict::Wake => Err(ProxyError::HoldExpired),
            Verdict::Refuse(error) => Err(error),
        }
    }
}

fn judge(entry: &Entry) -> Verdict {
    match entry.wanted() {
        _ if entry.deleting => Verdict::Refuse(ProxyError::Stopped),
        DesiredState::Stopped => Verdict::Refuse(ProxyError::Stopped),
        // Nobody meant to keep anybody out.
        DesiredState::Paused if entry.own_pause() == Some(PauseReason::Idle) => Verdict::Wake,
        DesiredState::Paused => Verdict::Refuse(ProxyError::Paused),
        DesiredState::Running => match entry.status.phase {
            Phase::Stopped => Verdict::Refuse(ProxyError::Stopped),
            Phase::Failed => Verdict::Refuse(ProxyError::Failed),
            _ if entry.is_ready() => Verdict::Go,
            _ if entry.was_ready() => Verdict::Hold,
            _ => Verdict::Refuse(ProxyError::NotReady),
        },
    }
}

/// Whether the sandbox runs somewhere else, or was started again, since `before`.
fn has_moved(before: &Entry, now: &Entry) -> bool {
    let place = |e: &Entry| {
        (
            e.uid.clone(),
            e.status.pod_ip.clone(),
            e.status.ready_at.clone(),
        )
    };
    place(before) != place(now)
}
