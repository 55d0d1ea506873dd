//! Readiness probes: one task per starting sandbox, from the moment its Pod has an address. A
//! result requeues the sandbox. Results are in memory only; after a restart of the controller
//! sandboxes are probed again, and until then the status stays.

mod limiter;
mod target;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::{
    ControlMessage, Grant, Init, MAX_READY_WAIT_SECONDS, ReadyReport, SupervisorState,
};
use crds::contract::sealing::SealedInit;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::facts::{ContainerRun, ProbeResult, RunStart};
use crate::probes::supervisor_client::{SupervisorAddress, SupervisorError, Supervisors};
use crate::sandbox_memory::PerSandbox;
use limiter::ProbeLimiter;
use shared::clock::Clock;
use shared::index::Key;
use shared::keys::Keys;
use shared::kubernetes::work_queue::WorkQueue;
use shared::metrics::ControllerMetrics;
pub(crate) use target::{ExpectedOwner, MakeInit, ProbeTarget};

/// First delay after a probe that could not connect.
const INITIAL_BACKOFF: Duration = Duration::from_millis(5);
/// Maximum delay in a short start; it bounds what probing adds to the start time.
const MAX_STARTUP_BACKOFF: Duration = Duration::from_millis(250);
/// Minimum delay after a report that is not ready. A long poll waits by itself, unless the server
/// does not follow the contract or no long poll slot was free.
const NOT_READY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum delay. Delays grow to a sixteenth of the time since the first probe.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Time without a response after which a sandbox on a silent node counts as not ready.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without any answer after which a claimed Pod counts as dead: a supervisor that was warm is
/// listening, and answers in milliseconds.
const CLAIMED_SILENCE: Duration = Duration::from_secs(10);
/// Maximum time of one long poll, so that slots become free.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(if MAX_READY_WAIT_SECONDS < 20 {
    MAX_READY_WAIT_SECONDS
} else {
    20
});

/// Running probes and their results.
pub(crate) struct ReadinessProber {
    supervisors: Arc<dyn Supervisors>,
    keys: Arc<Keys>,
    clock: Clock,
    queue: Arc<WorkQueue<Key>>,
    limiter: ProbeLimiter,
    metrics: ControllerMetrics,
    probes: Mutex<HashMap<Key, ProbeState>>,
}

struct ProbeState {
    run: ContainerRun,
    /// A Pod gets another address when its node has restarted.
    ip: String,
    result: Option<ProbeResult>,
    start: RunStart,
    /// Aborts the probe when dropped.
    _task: AbortOnDropHandle<()>,
}

/// Probe of one container run.
struct ProbeTask {
    prober: Arc<ReadinessProber>,
    key: Key,
    run: ContainerRun,
    address: SupervisorAddress,
    target: ProbeTarget,
    /// Time that decides on the keys.
    created_at: Option<Timestamp>,
    since: Instant,
}

impl ReadinessProber {
    pub(crate) fn new(
        supervisors: Arc<dyn Supervisors>,
        keys: Arc<Keys>,
        clock: Clock,
        queue: Arc<WorkQueue<Key>>,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            supervisors,
            keys,
            clock,
            queue,
            metrics,
            limiter: ProbeLimiter::default(),
            probes: Mutex::default(),
        }
    }

    /// Result of the probe of this container run.
    pub(crate) fn result(&self, key: &Key, run: &ContainerRun) -> Option<ProbeResult> {
        let probes = self.probes.lock();
        probes.get(key).filter(|p| p.run == *run)?.result.clone()
    }

    /// State and processes that a container run began with.
    pub(crate) fn start(&self, key: &Key, run: &ContainerRun) -> Option<RunStart> {
        let probes = self.probes.lock();
        Some(probes.get(key).filter(|p| p.run == *run)?.start.clone())
    }

    /// Starts the probe of this container run at this address, unless it is running or has a result.
    pub(crate) fn ensure_probing(
        self: &Arc<Self>,
        key: &Key,
        run: ContainerRun,
        ip: &str,
        target: ProbeTarget,
    ) {
        let mut probes = self.probes.lock();
        if probes.get(key).is_some_and(|p| p.run == run && p.ip == ip) {
            return;
        }
        let (identity, created_at) = match &target {
            ProbeTarget::Supervisor {
                identity,
                created_at,
                ..
            } => (*identity, *created_at),
            ProbeTarget::Port(_) => (None, None),
        };
        let probe = ProbeTask {
            prober: self.clone(),
            key: key.clone(),
            run: run.clone(),
            address: SupervisorAddress {
                ip: ip.to_owned(),
                identity,
            },
            target,
            created_at,
            since: Instant::now(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(probe.run()));
        probes.insert(
            key.clone(),
            ProbeState {
                run,
                ip: ip.to_owned(),
                result: None,
                start: RunStart::default(),
                _task: task,
            },
        );
    }

    /// Stores a result and requeues the sandbox if it has changed.
    fn record(&self, task: &ProbeTask, result: ProbeResult) {
        let (key, ip) = (&task.key, &task.address.ip);
        let mut probes = self.probes.lock();
        let probe = probes.get_mut(key);
        let Some(probe) = probe.filter(|p| p.run == task.run && p.ip == *ip) else {
            return;
        };
        if probe.result.as_ref() != Some(&result) {
            probe.result = Some(result);
            self.queue.add_first(key.clone());
        }
    }
}

impl PerSandbox for ReadinessProber {
    fn forget(&self, key: &Key) {
        self.probes.lock().remove(key);
    }
}

impl ProbeTask {
    async fn run(self) {
        let mut backoff = INITIAL_BACKOFF;
        loop {
            match self.probe_once().await {
                Ok(ProbeResult::Ready) => {
                    self.record(ProbeResult::Ready);
                    return;
                }
                Ok(result) => {
                    self.record(result);
                    sleep(self.delay(NOT_READY_INTERVAL)).await;
                }
                Err(error) => {
                    tracing::trace!(key = %self.key, %error, "readiness probe failed");
                    if self.run.node_silent && self.since.elapsed() >= UNREACHABLE_TIMEOUT {
                        self.record(ProbeResult::NotReady(Some(error.to_string())));
                    } else if self.is_silent() {
                        self.record(ProbeResult::Silent);
                    }
                    sleep(self.delay(backoff)).await;
                    backoff = (backoff * 3 / 2).min(MAX_STARTUP_BACKOFF);
                }
            }
        }
    }

    fn record(&self, result: ProbeResult) {
        self.prober.record(self, result);
    }

    /// Returns whether a claimed Pod should have answered by now.
    fn is_silent(&self) -> bool {
        let has_answered = self.prober.result(&self.key, &self.run).is_some();
        self.target.is_claimed() && !has_answered && self.since.elapsed() >= CLAIMED_SILENCE
    }

    /// Delay before the next probe: at least `least`, longer in a long start.
    fn delay(&self, least: Duration) -> Duration {
        (self.since.elapsed() / 16).min(MAX_BACKOFF).max(least)
    }

    async fn short_probe_permit(&self) -> Option<SemaphorePermit<'_>> {
        let limiter = &self.prober.limiter;
        limiter.short_probe_permit(self.since.elapsed()).await
    }

    async fn probe_once(&self) -> Result<ProbeResult, SupervisorError> {
        let result = match &self.target {
            ProbeTarget::Port(port) => self.probe_port(*port).await,
            ProbeTarget::Supervisor { init, .. } => self.probe_supervisor(init).await,
        };
        match result {
            Err(SupervisorError::OtherOwner) => Ok(ProbeResult::OtherOwner),
            // A server that does not follow the contract is reported to the user.
            Err(
                error @ (SupervisorError::Refused(_)
                | SupervisorError::Malformed
                | SupervisorError::Unproven),
            ) => Ok(ProbeResult::NotReady(Some(format!(
                "the supervisor: {error}"
            )))),
            result => result,
        }
    }

    async fn probe_port(&self, port: u16) -> Result<ProbeResult, SupervisorError> {
        let _permit = self.short_probe_permit().await;
        let supervisors = &self.prober.supervisors;
        if supervisors
            .accepts_connections(&self.address.ip, port)
            .await
        {
            return Ok(ProbeResult::Ready);
        }
        Err(SupervisorError::Unreachable(format!("port {port}")))
    }

    /// Short probe, and then a long poll if a slot is free.
    async fn probe_supervisor(&self, init: &MakeInit) -> Result<ProbeResult, SupervisorError> {
        let result = self.probe_or_init(init).await?;
        if result == ProbeResult::Ready {
            return Ok(result);
        }
        let Some(mut slot) = self.prober.limiter.long_poll_slot(self.since.elapsed()) else {
            return Ok(result);
        };
        tokio::select! {
            report = self.report(LONG_POLL_TIMEOUT) => Ok(probe_result(report?)),
            () = slot.preempted() => Ok(result),
        }
    }

    /// Short probe. A dormant supervisor gets the init message; an earlier process may have sent
    /// it already.
    async fn probe_or_init(&self, init: &MakeInit) -> Result<ProbeResult, SupervisorError> {
        let _permit = self.short_probe_permit().await;
        let report = self.report(Duration::ZERO).await?;
        if report.state == SupervisorState::Dormant {
            let init = init()?;
            let token = self.token(self.init_grant(init, report.sealing_key)?)?;
            self.prober.supervisors.init(&self.address, token).await?;
            return Ok(ProbeResult::NotReady(None));
        }
        let result = probe_result(report);
        if result != ProbeResult::Ready {
            // The status may still say ready after a restart of this process.
            self.record(result.clone());
        }
        Ok(result)
    }

    async fn report(&self, wait: Duration) -> Result<ReadyReport, SupervisorError> {
        let token = self.token(Grant::Ready)?;
        let supervisors = &self.prober.supervisors;
        let report = supervisors.ready(&self.address, token, wait).await?;
        match &self.target {
            ProbeTarget::Supervisor { owner, .. } if !owner.accepts(&report) => {
                Err(SupervisorError::OtherOwner)
            }
            _ => {
                self.record_handover(&report);
                self.record_start(&report);
                Ok(report)
            }
        }
    }

    /// Counts whether the program of a warm Pod became the command.
    fn record_handover(&self, report: &ReadyReport) {
        if report.state != SupervisorState::Ready || !self.target.is_claimed() {
            return;
        }
        if let Some(taken_over) = report.prestarted {
            let outcome = if taken_over {
                "prestarted"
            } else {
                "started_anew"
            };
            self.prober.metrics.record_claim(outcome);
        }
    }

    fn record_start(&self, report: &ReadyReport) {
        let mut probes = self.prober.probes.lock();
        if let Some(probe) = probes.get_mut(&self.key).filter(|p| p.run == self.run) {
            let RunStart {
                restored,
                processes_id,
            } = RunStart::of(report);
            probe.start.restored = restored.or(probe.start.restored.take());
            probe.start.processes_id = processes_id.or(probe.start.processes_id.take());
        }
    }

    /// Encrypts the init message. A supervisor of an earlier version has no key and gets it in clear;
    /// the client does not accept such a report from a Pod with an identity.
    fn init_grant(&self, init: Init, key: Option<String>) -> Result<Grant, SupervisorError> {
        let Some(key) = key else {
            return Ok(Grant::Init(Box::new(init)));
        };
        let sealed = SealedInit::seal(&init, &key, &self.run.pod_uid);
        let sealed = sealed.map_err(|_| SupervisorError::Malformed)?;
        Ok(Grant::SealedInit(sealed))
    }

    fn token(&self, grant: Grant) -> Result<String, SupervisorError> {
        // The controller's clock may lag after a suspend of the machine; the Pod's does not.
        let now = self.prober.clock.now().max(Timestamp::now());
        ControlMessage::new(&self.run.pod_uid, now.as_second(), grant)
            .sign(self.prober.keys.of(self.created_at).signer())
            .map_err(|_| SupervisorError::Malformed)
    }
}

fn probe_result(report: ReadyReport) -> ProbeResult {
    match report.state {
        SupervisorState::Ready => ProbeResult::Ready,
        _ => ProbeResult::NotReady(report.detail),
    }
}

impl std::fmt::Debug for ReadinessProber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadinessProber")
            .field("probes", &self.probes.lock().len())
            .finish_non_exhaustive()
    }
}
