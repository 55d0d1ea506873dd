//! Leader election by a Lease: one controller acts, the others keep their caches warm.
//!
//! Whether a lease has expired is judged on this process's monotonic clock from the moment it saw
//! the lease change, never by comparing clocks of machines. Every write names the version it
//! replaces. Who loses the lease must end; until it has, its [`Tenure`] keeps it from writing.

mod tenure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

use super::backoff::jittered;
use super::client::{CallError, bounded};
use crate::vitals::Vitals;

pub use tenure::Tenure;

/// How long a lease holds without renewal.
const DURATION: Duration = Duration::from_secs(6);
/// How often the leader renews it.
const RENEWAL: Duration = Duration::from_secs(2);
/// When a leader that cannot renew gives up: before anybody may take over.
const SURRENDER: Duration = Duration::from_secs(4);
/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Shortest pause between looks.
const SOON: Duration = Duration::from_millis(100);
/// How often the others look.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time for the lease to be given back.
const RELEASE: Duration = Duration::from_secs(2);
/// What health calls the lease.
const NEED: &str = "lease";

/// Which lease, and as whom.
#[derive(Debug, Clone)]
pub struct Candidacy {
    pub namespace: String,
    pub name: String,
    /// Unique among all candidates, for example the Pod's name.
    pub identity: String,
}

/// Why leadership ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    #[error("another process leads: {0}")]
    Replaced(String),
    #[error("the lease could not be renewed in time")]
    Expired,
}

/// A candidate, or the leader.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    candidacy: Candidacy,
    vitals: Arc<Vitals>,
    tenure: Arc<Tenure>,
    /// The lease as last seen to change, and when that was.
    seen: Option<(String, Instant)>,
}

enum Attempt {
    Won,
    HeldBy(String),
}

impl Election {
    pub fn new(client: Client, candidacy: Candidacy, vitals: Arc<Vitals>) -> Self {
        Self {
            api: Api::namespaced(client, &candidacy.namespace),
            candidacy,
            vitals,
            tenure: Arc::default(),
            seen: None,
        }
    }

    /// What tells whether this process may write.
    pub fn tenure(&self) -> Arc<Tenure> {
        self.tenure.clone()
    }

    /// Waits until this process leads.
    pub async fn win(&mut self) {
        loop {
            let attempt = self.attempt().await;
            self.tell(&attempt);
            match attempt {
                Ok(Attempt::Won) => break,
                Ok(Attempt::HeldBy(holder)) => tracing::debug!(holder, "standing by"),
                Err(error) => tracing::warn!(%error, "the lease cannot be had"),
            }
            sleep(self.pause()).await;
        }
        tracing::info!(identity = self.candidacy.identity, "leading");
    }

    /// Until the next look, or until the lease expires if nobody renews it.
    fn pause(&self) -> Duration {
        let look = jittered(LOOK);
        match &self.seen {
            Some((_, since)) => look.min(DURATION.saturating_sub(since.elapsed())).max(SOON),
            None => look,
        }
    }

    /// A lease that cannot be had is something the process lacks.
    fn tell(&self, attempt: &Result<Attempt, CallError>) {
        let health = &self.vitals.health;
        match attempt {
            Ok(_) => health.has(NEED),
            Err(error) => {
                let Candidacy {
                    namespace, name, ..
                } = &self.candidacy;
                health.lacks(
                    NEED,
                    format!("lease {namespace}/{name} cannot be had: {error}"),
                );
            }
        }
    }

    /// Renews the lease until that is no longer possible; then this process must not act any more.
    pub async fn hold(&mut self) -> LeaderError {
        let lost = self.renew().await;
        self.tenure.end();
        lost
    }

    async fn renew(&mut self) -> LeaderError {
        let mut renewed = Instant::now();
        let mut pause = RENEWAL;
        loop {
            sleep(pause).await;
            pause = RENEWAL;
            let left = SURRENDER.saturating_sub(renewed.elapsed());
            let started = Instant::now();
            match timeout(left, self.attempt()).await {
                Ok(Ok(Attempt::Won)) => renewed = started,
                Ok(Ok(Attempt::HeldBy(holder))) => return LeaderError::Replaced(holder),
                Ok(Err(error)) if renewed.elapsed() < SURRENDER => {
                    tracing::warn!(%error, "the lease was not renewed; trying again");
                    pause = RETRY;
                }
                Ok(Err(_)) | Err(_) => return LeaderError::Expired,
            }
        }
    }

    /// Gives the lease back, so that another takes over at once. Nothing may be under way any more.
    pub async fn release(&self) {
        self.tenure.end();
        match timeout(RELEASE, self.give_back()).await {
            Ok(Ok(())) => tracing::info!("the lease is released"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not released"),
            Err(_) => tracing::warn!("the lease was not released in time"),
        }
    }

    async fn give_back(&self) -> Result<(), CallError> {
        let mut lease = bounded(self.api.get(&self.candidacy.name)).await?;
        if holder(&lease) == self.candidacy.identity {
            lease.spec.get_or_insert_default().holder_identity = None;
            self.write(&lease).await?;
        }
        Ok(())
    }

    /// Tries to have the lease. What the tenure rests on is when the attempt began: rivals count
    /// from what they see afterwards.
    async fn attempt(&mut self) -> Result<Attempt, CallError> {
        let began = Instant::now();
        let attempt = self.contest().await?;
        if matches!(attempt, Attempt::Won) {
            self.tenure.extend(began + SURRENDER);
        }
        Ok(attempt)
    }

    async fn contest(&mut self) -> Result<Attempt, CallError> {
        let Some(lease) = bounded(self.api.get_opt(&self.candidacy.name)).await? else {
            return Self::settle(self.create().await);
        };
        let holder = holder(&lease).to_owned();
        let free = holder.is_empty() || holder == self.candidacy.identity;
        if !self.expired(&lease) && !free {
            return Ok(Attempt::HeldBy(holder));
        }
        let mine = self.taken(lease);
        Self::settle(self.write(&mine).await)
    }

    /// Losing a race for a write is no error.
    fn settle(written: Result<Lease, CallError>) -> Result<Attempt, CallError> {
        match written {
            Ok(_) => Ok(Attempt::Won),
            Err(error) if error.code() == Some(409) => Ok(Attempt::HeldBy("a rival".into())),
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

    fn taken(&self, mut lease: Lease) -> Lease {
        let new_holder = holder(&lease) != self.candidacy.identity;
        let spec = lease.spec.get_or_insert_default();
        let now = Some(MicroTime(Timestamp::now()));
        if new_holder {
            spec.acquire_time.clone_from(&now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(self.candidacy.identity.clone());
        spec.renew_time = now;
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        lease
    }

    async fn create(&self) -> Result<Lease, CallError> {
        let lease = self.taken(Lease {
            metadata: ObjectMeta {
                name: Some(self.candidacy.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec::default()),
        });
        bounded(self.api.create(&PostParams::default(), &lease)).await
    }

    /// The resource version in `lease` makes the write fail if anybody else wrote meanwhile.
    async fn write(&self, lease: &Lease) -> Result<Lease, CallError> {
        let params = PostParams::default();
        bounded(self.api.replace(&self.candidacy.name, &params, lease)).await
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
        .map_or(DURATION, Duration::from_secs)
}
