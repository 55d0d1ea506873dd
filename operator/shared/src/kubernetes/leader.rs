//! Leader election by a Lease: one controller is the leader, the others are standby.
//!
//! Expiry of the lease is judged on the monotonic clock, from the last change that this process
//! saw. Clocks of machines are never compared. Every write names the version that it replaces. A
//! process that loses the lease must end; until then its [`WriteFence`] blocks writes.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::jittered;
use super::client::{CallError, with_timeout};
use crate::diagnostics::Diagnostics;

const LEASE_DURATION: Duration = Duration::from_secs(6);
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// Time after which a leader that cannot renew gives up, before another process may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
/// Delay after a failed renewal.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum delay between attempts of a standby.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between attempts of a standby.
const STANDBY_POLL_INTERVAL: Duration = Duration::from_secs(1);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const LEASE_CHECK: &str = "lease";

#[derive(Debug, Clone)]
pub struct LeaseConfig {
    pub namespace: String,
    pub name: String,
    /// Unique among all candidates, for example the Pod's name.
    pub identity: String,
}

/// Reason for which leadership ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    #[error("another process leads: {0}")]
    Replaced(String),
    #[error("the lease was not renewed before the renew deadline")]
    Expired,
}

/// Candidate or leader.
#[derive(Debug)]
pub struct LeaderElection {
    api: Api<Lease>,
    config: LeaseConfig,
    vitals: Arc<Diagnostics>,
    fence: Arc<WriteFence>,
    /// Last seen version of the lease and the time of that change.
    seen: Option<(String, Instant)>,
}

/// Time until which leadership is certain. It expires by itself, so that a process that was
/// suspended does not write while another one leads.
#[derive(Debug, Default)]
pub struct WriteFence(Mutex<Option<Instant>>);

impl WriteFence {
    pub fn allows_writes(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn extend(&self, until: Instant) {
        *self.0.lock() = Some(until);
    }

    fn close(&self) {
        *self.0.lock() = None;
    }
}

enum AcquireOutcome {
    Acquired,
    HeldBy(String),
}

impl LeaderElection {
    pub fn new(client: Client, config: LeaseConfig, vitals: Arc<Diagnostics>) -> Self {
        Self {
            api: Api::namespaced(client, &config.namespace),
            config,
            vitals,
            fence: Arc::default(),
            seen: None,
        }
    }

    /// Fence that blocks writes while this process does not lead.
    pub fn write_fence(&self) -> Arc<WriteFence> {
        self.fence.clone()
    }

    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        loop {
            let attempt = self.try_acquire_or_renew().await;
            if attempt.is_ok() {
                self.vitals.health.clear_unmet(LEASE_CHECK);
            }
            match attempt {
                Ok(AcquireOutcome::Acquired) => break,
                Ok(AcquireOutcome::HeldBy(holder)) => {
                    tracing::debug!(holder, "standby: the lease is held by another controller");
                }
                Err(error) => {
                    let LeaseConfig {
                        namespace, name, ..
                    } = &self.config;
                    let unmet = format!("cannot acquire lease {namespace}/{name}: {error}");
                    self.vitals.health.set_unmet(LEASE_CHECK, unmet);
                    tracing::warn!(%error, "cannot acquire the lease");
                }
            }
            sleep(self.poll_delay()).await;
        }
        tracing::info!(identity = self.config.identity, "acquired the lease");
    }

    /// Time until the next attempt, or until the lease expires if it is not renewed.
    fn poll_delay(&self) -> Duration {
        let interval = jittered(STANDBY_POLL_INTERVAL);
        match &self.seen {
            Some((_, since)) => interval
                .min(LEASE_DURATION.saturating_sub(since.elapsed()))
                .max(MIN_POLL_INTERVAL),
            None => interval,
        }
    }

    /// Renews the lease until that fails; then this process must not write any more.
    pub async fn renew_until_lost(&mut self) -> LeaderError {
        let lost = self.renew().await;
        self.fence.close();
        lost
    }

    async fn renew(&mut self) -> LeaderError {
        let mut renewed = Instant::now();
        let mut delay = RENEW_INTERVAL;
        loop {
            sleep(delay).await;
            delay = RENEW_INTERVAL;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            let started = Instant::now();
            match timeout(left, self.try_acquire_or_renew()).await {
                Ok(Ok(AcquireOutcome::Acquired)) => renewed = started,
                Ok(Ok(AcquireOutcome::HeldBy(holder))) => return LeaderError::Replaced(holder),
                Ok(Err(error)) if renewed.elapsed() < RENEW_DEADLINE => {
                    tracing::warn!(%error, "cannot renew the lease; retrying");
                    delay = RETRY_INTERVAL;
                }
                Ok(Err(_)) | Err(_) => return LeaderError::Expired,
            }
        }
    }

    /// Releases the lease, so that a standby takes over at once. No reconcile may be in progress.
    pub async fn release(&self) {
        self.fence.close();
        match timeout(RELEASE_TIMEOUT, self.release_lease()).await {
            Ok(Ok(())) => tracing::info!("released the lease"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot release the lease"),
            Err(_) => tracing::warn!("the lease was not released within the time limit"),
        }
    }

    async fn release_lease(&self) -> Result<(), CallError> {
        let mut lease = with_timeout(self.api.get(&self.config.name)).await?;
        if holder(&lease) == self.config.identity {
            lease.spec.get_or_insert_default().holder_identity = None;
            self.write(&lease).await?;
        }
        Ok(())
    }

    /// Tries to acquire or renew the lease. The fence counts from the start of the attempt, because
    /// other candidates count from what they see afterwards.
    async fn try_acquire_or_renew(&mut self) -> Result<AcquireOutcome, CallError> {
        let started = Instant::now();
        let attempt = self.acquire_or_renew().await?;
        if matches!(attempt, AcquireOutcome::Acquired) {
            self.fence.extend(started + RENEW_DEADLINE);
        }
        Ok(attempt)
    }

    async fn acquire_or_renew(&mut self) -> Result<AcquireOutcome, CallError> {
        let Some(lease) = with_timeout(self.api.get_opt(&self.config.name)).await? else {
            return Self::resolve_conflict(self.create().await);
        };
        let holder = holder(&lease).to_owned();
        let free = holder.is_empty() || holder == self.config.identity;
        if !self.expired(&lease) && !free {
            return Ok(AcquireOutcome::HeldBy(holder));
        }
        let mine = self.with_self_as_holder(lease);
        Self::resolve_conflict(self.write(&mine).await)
    }

    /// A write conflict means that another candidate won.
    fn resolve_conflict(written: Result<Lease, CallError>) -> Result<AcquireOutcome, CallError> {
        match written {
            Ok(_) => Ok(AcquireOutcome::Acquired),
            Err(error) if error.code() == Some(409) => {
                Ok(AcquireOutcome::HeldBy("another candidate".into()))
            }
            Err(error) => Err(error),
        }
    }

    fn expired(&mut self, lease: &Lease) -> bool {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        match &self.seen {
            Some((known, since)) if *known == version => since.elapsed() >= duration_of(lease),
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }

    fn with_self_as_holder(&self, mut lease: Lease) -> Lease {
        let new_holder = holder(&lease) != self.config.identity;
        let spec = lease.spec.get_or_insert_default();
        let now = Some(MicroTime(Timestamp::now()));
        if new_holder {
            spec.acquire_time.clone_from(&now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(self.config.identity.clone());
        spec.renew_time = now;
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        lease
    }

    async fn create(&self) -> Result<Lease, CallError> {
        let mut lease = self.with_self_as_holder(Lease::default());
        lease.metadata.name = Some(self.config.name.clone());
        with_timeout(self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the lease. Fails after a change by another process, by its resource version.
    async fn write(&self, lease: &Lease) -> Result<Lease, CallError> {
        let params = PostParams::default();
        with_timeout(self.api.replace(&self.config.name, &params, lease)).await
    }
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|s| s.holder_identity.as_deref())
        .unwrap_or_default()
}

fn duration_of(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|s| s.lease_duration_seconds);
    seconds
        .and_then(|s| u64::try_from(s).ok())
        .map_or(LEASE_DURATION, Duration::from_secs)
}
