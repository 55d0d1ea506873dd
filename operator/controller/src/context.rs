//! The state that all reconciles share: indexes, probes, limits and the client of the API server.

use std::sync::Arc;

use kube::Client;
use shared::clock::Clock;
use shared::index::{Index, Key};
use shared::keys::Keys;
use shared::kubernetes::work_queue::WorkQueue;
use shared::metrics::ControllerMetrics;

use crate::PeerClients;
use crate::config::ControllerConfig;
use crate::control_loop::reported_errors::ReportedErrors;
use crate::control_loop::start_latency::StartTimer;
use crate::events::EventPublisher;
use crate::limits::quota::QuotaQueue;
use crate::limits::replacement_backoff::ReplacementBackoff;
use crate::limits::self_update_filter::SelfUpdateFilter;
use crate::per_sandbox::SandboxStates;
use crate::pod_index::PodIndex;
use crate::pools::PoolIndex;
use crate::probes::idle_checker::IdleChecker;
use crate::probes::readiness_prober::ReadinessProber;

/// Shared state of all reconciles.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: ControllerConfig,
    pub(crate) keys: Arc<Keys>,
    pub(crate) control_key: String,
    /// Name of this installation in the status of its Sandboxes: its lease.
    pub(crate) installation: Option<String>,
    pub(crate) clock: Clock,
    pub(crate) index: Arc<Index>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) pools: Arc<PoolIndex>,
    pub(crate) metrics: ControllerMetrics,
    /// Owner of the state about single Sandboxes that the following fields refer to.
    pub(crate) sandbox_states: SandboxStates,
    pub(crate) readiness: Arc<ReadinessProber>,
    pub(crate) idle_checker: Arc<IdleChecker>,
    pub(crate) replacement_backoff: Arc<ReplacementBackoff>,
    pub(crate) self_update_filter: Arc<SelfUpdateFilter>,
    pub(crate) quota: Arc<QuotaQueue>,
    pub(crate) start_timer: Arc<StartTimer>,
    pub(crate) reported_errors: Arc<ReportedErrors>,
    pub(crate) events: Arc<EventPublisher>,
}

impl Context {
    pub(crate) fn new(
        client: Client,
        config: ControllerConfig,
        keys: Arc<Keys>,
        index: Arc<Index>,
        peers: PeerClients,
        clock: Clock,
        queue: &Arc<WorkQueue<Key>>,
    ) -> Self {
        let metrics = ControllerMetrics::default();
        let supervisors = peers.supervisors.clone();
        let mut states = SandboxStates::default();
        Self {
            control_key: keys.signer().public_key(),
            installation: installation(&config),
            pods: Arc::new(PodIndex::new(clock, queue.clone())),
            pools: Arc::new(PoolIndex::new(index.clone(), queue.clone())),
            readiness: states.own(ReadinessProber::new(
                supervisors,
                keys.clone(),
                clock,
                queue.clone(),
            )),
            idle_checker: states.own(IdleChecker::new(peers, clock, queue.clone())),
            replacement_backoff: states.own(ReplacementBackoff::default()),
            self_update_filter: states.own(SelfUpdateFilter::default()),
            quota: states.own(QuotaQueue::new(config.tenants.clone(), queue.clone())),
            start_timer: states.own(StartTimer::default()),
            reported_errors: states.own(ReportedErrors::default()),
            events: states.own(EventPublisher::new(clock, metrics.clone())),
            sandbox_states: states,
            metrics,
            client,
            config,
            keys,
            clock,
            index,
        }
    }
}

fn installation(config: &ControllerConfig) -> Option<String> {
    let lease = config.leader.as_ref()?;
    Some(format!("{}/{}", lease.namespace, lease.name))
}
