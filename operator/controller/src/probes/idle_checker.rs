//! Idle checks: queries the sandbox server and the gateways before an idle pause, at most one
//! check per sandbox at a time. A report requeues the sandbox.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::PeerClients;
use crate::facts::{ContainerRun, IdleReport};
use crate::sandbox_memory::PerSandbox;
use shared::clock::Clock;
use shared::index::Key;
use shared::kubernetes::work_queue::WorkQueue;
use shared::traffic::Traffic;

/// Maximum number of concurrent checks.
const MAX_CONCURRENT_CHECKS: usize = 256;
/// Timeout of the query to a sandbox server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Running checks and the latest reports.
pub(crate) struct IdleChecker {
    peers: PeerClients,
    clock: Clock,
    queue: Arc<WorkQueue<Key>>,
    permits: Arc<Semaphore>,
    checks: Mutex<HashMap<Key, IdleCheck>>,
}

struct IdleCheck {
    run: ContainerRun,
    report: Option<IdleReport>,
    /// The running check, if any; aborted when dropped.
    task: Option<AbortOnDropHandle<()>>,
}

impl IdleChecker {
    pub(crate) fn new(peers: PeerClients, clock: Clock, queue: Arc<WorkQueue<Key>>) -> Self {
        Self {
            peers,
            clock,
            queue,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CHECKS)),
            checks: Mutex::default(),
        }
    }

    /// Latest report about this container run.
    pub(crate) fn report(&self, key: &Key, run: &ContainerRun) -> Option<IdleReport> {
        let checks = self.checks.lock();
        checks.get(key).filter(|c| c.run == *run)?.report
    }

    /// Starts a check, unless one of this container run is running. `server` is the address of the
    /// sandbox server.
    pub(crate) fn ensure_checking(
        self: &Arc<Self>,
        key: &Key,
        run: ContainerRun,
        server: Option<(String, u16)>,
    ) {
        let mut checks = self.checks.lock();
        let known = checks.remove(key).filter(|c| c.run == run);
        let report = known.as_ref().and_then(|known| known.report);
        let task = known.and_then(|known| known.task).unwrap_or_else(|| {
            let (checker, key, run) = (self.clone(), key.clone(), run.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                let report = checker.check(&key, server).await;
                checker.record(&key, &run, report);
            }))
        });
        let task = Some(task);
        checks.insert(key.clone(), IdleCheck { run, report, task });
    }

    async fn check(&self, key: &Key, server: Option<(String, u16)>) -> IdleReport {
        let _permit = self.permits.acquire().await;
        let traffic = self.peers.gateways.traffic(key);
        let idle = async {
            let (ip, port) = server?;
            let query = self.peers.supervisors.server_idle_time(&ip, port);
            timeout(CHECK_TIMEOUT, query).await.ok()?
        };
        let (idle, traffic) = tokio::join!(idle, traffic);
        let checked_at = self.clock.now();
        let idle_since = match traffic {
            Ok(traffic) => {
                combine_idle_times(idle, traffic).map(|idle| start_of_idle_time(checked_at, idle))
            }
            Err(error) => {
                tracing::warn!(%key, %error, "idle check failed");
                None
            }
        };
        IdleReport {
            checked_at,
            idle_since,
        }
    }

    fn record(&self, key: &Key, run: &ContainerRun, report: IdleReport) {
        let mut checks = self.checks.lock();
        if let Some(check) = checks.get_mut(key).filter(|c| c.run == *run) {
            check.report = Some(report);
            check.task = None;
            self.queue.add(key.clone());
        }
    }
}

impl PerSandbox for IdleChecker {
    fn forget(&self, key: &Key) {
        self.checks.lock().remove(key);
    }
}

/// Combines the idle time of the sandbox server with that of the gateways, which see requests to
/// other ports. Without an answer of the server, the gateways decide
/// (`docs/specs/runtime-api.md`, section 6.3).
fn combine_idle_times(server: Option<Duration>, traffic: Option<Traffic>) -> Option<Duration> {
    match (server, traffic) {
        (Some(idle), Some(traffic)) if traffic.has_seen_request => Some(idle.min(traffic.idle)),
        (Some(idle), _) => Some(idle),
        (None, traffic) => Some(traffic?.idle),
    }
}

/// Start of the idle time. A sandbox may report any number, so it saturates.
fn start_of_idle_time(now: Timestamp, idle: Duration) -> Timestamp {
    let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
    now.checked_sub(idle).unwrap_or(Timestamp::MIN)
}
