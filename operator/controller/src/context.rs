//! The state that all reconciles share: indexes, probes, limits and the client of the API server.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use shared::clock::Clock;
use shared::index::{Index, Key};
use shared::keys::Keys;
use shared::kubernetes::work_queue::WorkQueue;
use shared::metrics::ControllerMetrics;
use tokio::sync::OnceCell;

use crate::PeerClients;
use crate::config::{ControllerConfig, RootPersistence, UserNamespaces};
use crate::events::EventPublisher;
use crate::image_builds::queue::BuildQueue;
use crate::injection::ExecutorInjection;
use crate::pod_features::{PodFeatures, ProbedSetting};
use crate::pod_index::PodIndex;
use crate::pod_meter::PodMeter;
use crate::pools::PoolIndex;
use crate::pools::demand::DemandIndex;
use crate::pools::shape::WarmPods;
use crate::pools::waiting::WaitingSandboxes;
use crate::pools::warm_pods::WarmPodIndex;
use crate::probes::idle_checker::IdleChecker;
use crate::probes::readiness_prober::ReadinessProber;
use crate::probes::state_saver::StateSaver;
use crate::probes::supervisor_client::Supervisors;
use crate::quota::QuotaQueue;
use crate::reconcile::isolation::Isolation;
use crate::rejected_persistence::{RecentRejections, RejectedPersistence};
use crate::sandbox_memory::{SandboxMemory, SandboxStates};
use crate::snapshots::index::SnapshotIndex;

/// Shared state of all reconciles.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: ControllerConfig,
    pub(crate) keys: Arc<Keys>,
    /// Name of this installation in the status of its Sandboxes: its lease.
    pub(crate) installation: Option<String>,
    pub(crate) clock: Clock,
    pub(crate) index: Arc<Index>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) pod_meter: Arc<PodMeter>,
    pub(crate) warm_pods: Arc<WarmPodIndex>,
    pub(crate) pools: Arc<PoolIndex>,
    pub(crate) snapshots: Arc<SnapshotIndex>,
    pub(crate) supervisors: Arc<dyn Supervisors>,
    pub(crate) waiting: Arc<WaitingSandboxes>,
    pub(crate) demand: DemandIndex,
    pub(crate) builds: Arc<BuildQueue>,
    pub(crate) sandbox_queue: Arc<WorkQueue<Key>>,
    /// Pools whose warm Pods have to be looked at.
    pub(crate) pool_queue: Arc<WorkQueue<Key>>,
    pub(crate) metrics: ControllerMetrics,
    /// Owner of the state about single Sandboxes that the following fields refer to.
    pub(crate) sandbox_states: SandboxStates,
    pub(crate) readiness: Arc<ReadinessProber>,
    pub(crate) idle_checker: Arc<IdleChecker>,
    pub(crate) saver: Arc<StateSaver>,
    pub(crate) memory: Arc<SandboxMemory>,
    pub(crate) quota: Arc<QuotaQueue>,
    pub(crate) isolation: Isolation,
    pub(crate) rejections: RecentRejections,
    pub(crate) injection: ExecutorInjection,
    pub(crate) root_overlays: ProbedSetting<RootPersistence>,
    pub(crate) user_namespaces: ProbedSetting<UserNamespaces>,
    /// The cluster changes the resources of Pods in place.
    pub(crate) resizes: OnceCell<bool>,
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
        let metrics = ControllerMetrics::with_series();
        let supervisors = peers.supervisors.clone();
        let pool_queue = Arc::new(WorkQueue::default());
        let pod_meter = PodMeter::new(metrics.clone());
        let warm_pods = WarmPodIndex::new(pool_queue.clone(), pod_meter.clone());
        let warm_pods = Arc::new(warm_pods);
        let pools = PoolIndex::new(index.clone(), queue.clone(), pool_queue.clone());
        let pools = Arc::new(pools);
        let snapshots = SnapshotIndex::new(index.clone(), queue.clone(), pools.clone());
        let mut states = SandboxStates::default();
        Self {
            installation: installation(&config),
            resizes: OnceCell::new(),
            injection: ExecutorInjection::new(config.pods.injection),
            root_overlays: ProbedSetting::new(config.persistence.root),
            user_namespaces: ProbedSetting::new(config.pods.user_namespaces),
            rejections: RecentRejections::default(),
            isolation: Isolation::new(config.pods.network_policy.clone()),
            pods: Arc::new(PodIndex::new(
                clock,
                queue.clone(),
                warm_pods.clone(),
                pod_meter.clone(),
            )),
            pod_meter,
            warm_pods,
            sandbox_queue: queue.clone(),
            pool_queue: pool_queue.clone(),
            pools,
            snapshots: Arc::new(snapshots),
            supervisors: supervisors.clone(),
            saver: states.own(StateSaver::new(
                supervisors.clone(),
                keys.clone(),
                clock,
                queue.clone(),
                metrics.clone(),
            )),
            readiness: states.own(ReadinessProber::new(
                supervisors,
                keys.clone(),
                clock,
                queue.clone(),
                metrics.clone(),
            )),
            idle_checker: states.own(IdleChecker::new(peers, clock, queue.clone())),
            memory: states.own(SandboxMemory::default()),
            quota: states.own(QuotaQueue::new(config.tenants.clone(), queue.clone())),
            demand: DemandIndex::default(),
            builds: Arc::default(),
            waiting: states.own(WaitingSandboxes::new(pool_queue.clone())),
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

impl Context {
    /// Features of a new Pod of this runtime class. Those of the default class stand in for an unknown
    /// one until the Pod is built, since it may be missing.
    pub(crate) fn pod_features(&self, runtime_class: Option<&str>) -> PodFeatures {
        let is_class_unknown = self.user_namespaces.answer(runtime_class).is_none()
            && self.root_overlays.answer(runtime_class).is_none();
        let class = if is_class_unknown {
            self.config.defaults.runtime_class_name.as_deref()
        } else {
            runtime_class
        };
        PodFeatures {
            injection: self.injection.current(),
            user_namespaces: self.user_namespaces.current(class),
            root_persistence: self.root_overlays.current(class),
            is_class_unknown,
            rejected: RejectedPersistence::default(),
        }
    }

    /// Builder of warm Pods, with the features of the default runtime class.
    pub(crate) fn warm_pod_builder(&self) -> WarmPods<'_> {
        let class = self.config.defaults.runtime_class_name.as_deref();
        WarmPods {
            config: &self.config,
            keys: &self.keys,
            features: self.pod_features(class),
        }
    }

    /// API of a kind in the namespace of a Sandbox.
    pub(crate) fn api<K>(&self, sandbox: &Key) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &sandbox.namespace)
    }
}

fn installation(config: &ControllerConfig) -> Option<String> {
    let lease = config.leader.as_ref()?;
    Some(format!("{}/{}", lease.namespace, lease.name))
}
