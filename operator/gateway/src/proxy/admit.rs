//! Decides by the state of a sandbox whether a request is forwarded, held or rejected.
//!
//! A request is held while a sandbox that has been ready is away for a moment or paused as idle: V0
//! clients hang forever when that moment is answered with 503 (`docs/specs/runtime-api.md`, section
//! 3.10).

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::{DesiredState, PauseReason, Phase};
use tokio::sync::SemaphorePermit;

use super::{Proxy, ProxyError, Route};
use crate::sandboxes::{INDEX_CATCH_UP_TIMEOUT, SandboxError};
use shared::index::Entry;
use shared::metrics::GaugeGuard;

/// Time in which the index learns of a deleted Pod or a crashed server.
const INDEX_UPDATE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestDecision {
    Forward,
    /// The sandbox comes back without a request.
    Hold,
    /// The sandbox comes back when the gateway wakes it.
    Wake,
    Reject(ProxyError),
}

impl Proxy {
    /// Finds the entry of the sandbox that a request is for, if it has that port or plugin.
    pub(super) async fn find(&self, route: &Route) -> Result<Arc<Entry>, ProxyError> {
        let found = self.sandboxes.find(&route.id).await;
        let entry = found.map_err(|error| match error {
            SandboxError::NotFound => ProxyError::UnknownSandbox,
            _ => ProxyError::LookupFailed,
        })?;
        let confirmed = self.sandboxes.confirm_address(entry).await;
        let entry = confirmed.ok_or(ProxyError::UnknownSandbox)?;
        if entry.port(&route.port).is_some() || entry.has_plugin(&route.port) {
            Ok(entry)
        } else {
            Err(ProxyError::UnknownPort)
        }
    }

    /// Returns the entry of a sandbox that is ready for a request, after a hold if needed.
    pub(super) async fn admit(
        &self,
        entry: Arc<Entry>,
        is_probe: bool,
    ) -> Result<Arc<Entry>, ProxyError> {
        match decide(&entry, is_probe) {
            RequestDecision::Reject(ProxyError::Stopped) => Err(ProxyError::Stopped),
            RequestDecision::Reject(_) => {
                let now = self.recheck_live(entry, is_probe).await?;
                self.proceed(now, is_probe).await
            }
            _ => self.proceed(entry, is_probe).await,
        }
    }

    /// As [`Proxy::admit`] after a failure with `error`. An unchanged entry is not trusted.
    pub(super) async fn readmit(
        &self,
        failed: &Entry,
        error: ProxyError,
        is_probe: bool,
    ) -> Result<Arc<Entry>, ProxyError> {
        let has_changed = |now: &Entry| {
            decide(now, is_probe) != RequestDecision::Forward || has_moved(failed, now)
        };
        let index = &self.sandboxes.index;
        let entry = index
            .wait(&failed.key, INDEX_UPDATE_TIMEOUT, has_changed)
            .await;
        let entry = entry.ok_or(ProxyError::UnknownSandbox)?;
        if !has_changed(&entry) {
            return Err(error);
        }
        self.proceed(entry, is_probe).await
    }

    async fn proceed(&self, entry: Arc<Entry>, is_probe: bool) -> Result<Arc<Entry>, ProxyError> {
        match decide(&entry, is_probe) {
            RequestDecision::Forward => Ok(entry),
            RequestDecision::Hold | RequestDecision::Wake => self.hold(entry, is_probe).await,
            RequestDecision::Reject(error) => Err(error),
        }
    }

    /// Confirms with the API server that a sandbox is not ready: another replica may have told the
    /// client that it is. Of many requests one asks the API server; the others wait for the index.
    async fn recheck_live(
        &self,
        entry: Arc<Entry>,
        is_probe: bool,
    ) -> Result<Arc<Entry>, ProxyError> {
        let now = match self.live_lookups.begin(&entry.key) {
            Some(_permit) => self.sandboxes.refresh(entry.clone()).await,
            None => self.wait_for_index(&entry, is_probe).await?,
        };
        now.ok_or(ProxyError::UnknownSandbox)
    }

    async fn wait_for_index(
        &self,
        entry: &Entry,
        is_probe: bool,
    ) -> Result<Option<Arc<Entry>>, ProxyError> {
        let _slot = self.acquire_hold_slot()?;
        let has_changed =
            |now: &Entry| !matches!(decide(now, is_probe), RequestDecision::Reject(_));
        Ok(self
            .sandboxes
            .index
            .wait(&entry.key, INDEX_CATCH_UP_TIMEOUT, has_changed)
            .await)
    }

    /// Waits up to `limit`. Returns whether the sandbox has moved or is not ready any more.
    pub(super) async fn has_changed_within(&self, entry: &Entry, limit: Duration) -> bool {
        let has_changed =
            |now: &Entry| decide(now, false) != RequestDecision::Forward || has_moved(entry, now);
        let now = self.sandboxes.index.wait(&entry.key, limit, has_changed);
        now.await.is_none_or(|now| has_changed(&now))
    }

    pub(super) fn acquire_hold_slot(
        &self,
    ) -> Result<(SemaphorePermit<'_>, GaugeGuard), ProxyError> {
        let slot = self.hold_slots.try_acquire();
        let slot = slot.map_err(|_| ProxyError::TooManyHeld)?;
        Ok((slot, GaugeGuard::new(&self.metrics.held)))
    }

    async fn hold(&self, entry: Arc<Entry>, is_probe: bool) -> Result<Arc<Entry>, ProxyError> {
        let slot = self.acquire_hold_slot()?;
        let index = &self.sandboxes.index;
        let limit = self.config().hold_limit;
        // The sandbox may be paused just before it came back, or during the hold.
        let decided = |now: &Entry| match decide(now, is_probe) {
            RequestDecision::Hold => false,
            RequestDecision::Wake => {
                self.wakes.wake(&self.sandboxes, now, limit);
                false
            }
            RequestDecision::Forward | RequestDecision::Reject(_) => true,
        };
        let entry = index.wait(&entry.key, limit, decided).await;
        drop(slot);
        let entry = entry.ok_or(ProxyError::UnknownSandbox)?;
        match decide(&entry, is_probe) {
            RequestDecision::Forward => Ok(entry),
            RequestDecision::Hold | RequestDecision::Wake => Err(ProxyError::HoldExpired),
            RequestDecision::Reject(error) => Err(error),
        }
    }
}

/// A probe does not wake a sandbox: as it is no activity, a monitor would wake it without end.
fn decide(entry: &Entry, is_probe: bool) -> RequestDecision {
    match entry.desired_state() {
        _ if entry.deleting => RequestDecision::Reject(ProxyError::Stopped),
        DesiredState::Stopped => RequestDecision::Reject(ProxyError::Stopped),
        // An idle pause is not meant to reject requests.
        DesiredState::Paused if !is_probe && is_idle_pause(entry) => RequestDecision::Wake,
        DesiredState::Paused => RequestDecision::Reject(ProxyError::Paused),
        DesiredState::Running => match entry.status.phase {
            Phase::Stopped => RequestDecision::Reject(ProxyError::Stopped),
            Phase::Failed if !entry.is_restart_requested() => {
                RequestDecision::Reject(ProxyError::Failed)
            }
            _ if entry.is_ready() => RequestDecision::Forward,
            _ if entry.was_ready() => RequestDecision::Hold,
            _ => RequestDecision::Reject(ProxyError::NotReady),
        },
    }
}

fn is_idle_pause(entry: &Entry) -> bool {
    entry.automatic_pause() == Some(PauseReason::Idle)
}

/// True if the sandbox has moved to another Pod or was restarted since `before`.
fn has_moved(before: &Entry, now: &Entry) -> bool {
    let run = |e: &Entry| {
        (
            e.uid.clone(),
            e.status.pod_ip.clone(),
            e.status.ready_at.clone(),
        )
    };
    run(before) != run(now)
}
