//! Leader election by a Lease: one controller acts, the others keep their caches warm.
//!
//! Whether a lease has expired is judged on this process's monotonic clock from the moment it saw
//! the lease change, never by comparing clocks of machines. Every write names the version it
//! replaces. Who loses the lease must end: that is the only fence.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

use super::backoff::jittered;
use super::client::{CallError, bounded};

/// How long a lease holds without renewal.
const DURATION: Duration = Duration::from_secs(6);
/// How often the leader renews it.
const RENEWAL: Duration = Duration::from_secs(2);
/// When a leader that cannot renew gives up: before anybody may take over.
const SURRENDER: Duration = Duration::from_secs(4);
/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often the others look.
const LOOK: Duration = Duration::from_secs(1);

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
    /// The lease as last seen to change, and when that was.
    seen: Option<(String, Instant)>,
}

enum Attempt {
    Won,
    HeldBy(String),
}

impl Election {
    pub fn new(client: Client, candidacy: Candidacy) -> Self {
        Self {
            api: Api::namespaced(client, &candidacy.namespace),
            candidacy,
            seen: None,
        }
    }

    /// Waits until this process leads.
    pub async fn win(&mut self) {
        loop {
            match self.attempt().await {
                Ok(Attempt::Won) => break,
                Ok(Attempt::HeldBy(holder)) => tracing::debug!(holder, "standing by"),
                Err(error) => tracing::warn!(%error, "the lease cannot be had"),
            }
            sleep(jittered(LOOK)).await;
        }
        tracing::info!(identity = self.candidacy.identity, "leading");
    }

    /// Renews the lease until that is no longer possible.
    pub async fn hold(&mut self) -> LeaderError {
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

    /// Gives the lease back, so that another takes over at once.
    pub async fn release(&self) {
        let result = async {
            let mut lease = bounded(self.api.get(&self.candidacy.name)).await?;
            if holder(&lease) == self.candidacy.identity {
                lease.spec.get_or_insert_default().holder_identity = None;
                self.write(&lease).await?;
            }
            Ok::<_, CallError>(())
        };
        if let Err(error) = result.await {
            tracing::warn!(%error, "the lease was not released");
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, CallError> {
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
