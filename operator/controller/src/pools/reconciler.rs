//! Keeps the warm Pods of each pool at their number. Only the leader runs it. A change of a pool or
//! of its Pods requeues the pool.

use std::sync::Arc;
use std::time::Duration;

use crds::names;
use crds::sandbox::SandboxSpec;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Pool;
use super::image_pulls::ImagePuller;
use super::plan::{PoolPlan, plan};
use super::refill::Refill;
use super::resize::is_supported;
use super::shape::{WarmPods, WarmTemplate};
use super::status::{Observation, StatusWriter};
use super::warm_pods::WarmPod;
use crate::context::Context;
use crate::facts::PodFacts;
use crate::reconcile::build::{BuildError, PoolRef};
use crate::sandbox_memory::{PerSandbox as _, SandboxMemory};
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::owned_objects::{CreateError, create_owned, delete};
use shared::kubernetes::slim::SlimPod;
use shared::kubernetes::work_queue::{MAX_OUTAGE_BACKOFF, WorkQueue};

/// Pools that are reconciled at once.
const MAX_CONCURRENT_POOLS: usize = 8;
/// Pods of one pool that are created or deleted at once. More would delay claims.
const MAX_CONCURRENT_WRITES: usize = 4;
/// Pods of one pool that one reconcile creates. The rest follows in the next one.
const MAX_BATCH: usize = 128;
/// Time for reconciles to end on shutdown: slightly more than the time limit of one call.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// Time after which a pool with demand is looked at again: demand is forgotten.
const RESIZE_INTERVAL: Duration = Duration::from_mins(1);
/// Age of a Pod whose PVC is no longer being created by this process.
const VOLUME_DELAY: SignedDuration = SignedDuration::from_secs(15);
/// Time limit of one reconcile.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Maintenance of the warm Pods.
pub(crate) struct PoolReconciler {
    context: Arc<Context>,
    /// Replacements of Pods that have ended, by pool.
    memory: SandboxMemory,
    statuses: StatusWriter,
    image_puller: ImagePuller,
}

#[derive(Debug, thiserror::Error)]
enum PoolError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot read the resources of the API server: {0}")]
    Discovery(#[from] kube::Error),
    #[error("cannot read random bytes from the operating system")]
    Random,
}

impl PoolReconciler {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context,
            memory: SandboxMemory::default(),
            statuses: StatusWriter::default(),
            image_puller: ImagePuller::default(),
        })
    }

    /// Reconciles pools until shutdown. Returns whether all reconciles have ended.
    pub(crate) async fn run(self: Arc<Self>, shutdown: &CancellationToken) -> bool {
        let queue = &self.context.pool_queue;
        queue.open();
        for pool in self.context.pools.keys() {
            queue.add(pool);
        }
        for pool in self.context.warm_pods.pools() {
            queue.add(pool);
        }
        let mut reconciles = JoinSet::new();
        let taking = async {
            loop {
                let (pool, _) = queue.next().await;
                reconciles.spawn(self.clone().reconcile_key(pool));
                while reconciles.try_join_next().is_some() {}
                if reconciles.len() >= MAX_CONCURRENT_POOLS {
                    reconciles.join_next().await;
                }
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(taking).await;
        let ended = async { while reconciles.join_next().await.is_some() {} };
        timeout(DRAIN_TIMEOUT, ended).await.is_ok()
    }

    async fn reconcile_key(self: Arc<Self>, key: Key) {
        let mut guard = QueueGuard {
            queue: &self.context.pool_queue,
            key: &key,
            outcome: Outcome::Failed,
        };
        let failure = match timeout(TIME_LIMIT, self.reconcile(&key)).await {
            Ok(Ok(next)) => {
                self.memory.forget_failure(&key);
                guard.outcome = Outcome::Succeeded(next);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the reconcile exceeded its time limit".to_owned(),
        };
        if self.memory.is_new_error(&key, &failure) {
            tracing::warn!(pool = %key, error = failure, "cannot maintain a pool; requeued");
        }
    }

    /// Creates and deletes Pods, and writes the status. Returns the time of the next reconcile.
    async fn reconcile(&self, key: &Key) -> Result<Option<Instant>, PoolError> {
        let context = &self.context;
        let Some(pool) = context.pools.get(key) else {
            // Kubernetes deletes the warm Pods with the pool. Claimed ones belong to their sandboxes.
            self.memory.forget(key);
            self.statuses.forget(key);
            self.image_puller.forget(key);
            context.demand.forget(key);
            return Ok(None);
        };
        let template = match self.warm_pods().template(&pool) {
            Ok(template) => template,
            Err(error) => {
                let plan = PoolPlan::blocked(self.replicas(key, &pool), &context.warm_pods.of(key));
                return Ok(self
                    .report(key, &pool, Observation::new(plan, Some(error.to_string())))
                    .await?);
            }
        };
        self.settle_claims(key).await?;
        let pods = context.warm_pods.of(key);
        let replicas = self.replicas(key, &pool);
        let mut plan = plan(&pool.spec, replicas, &template.revision, &pods);
        let mut refill_at = None;
        if plan.create > 0 {
            match context.warm_pods.refill(key, plan.percent()) {
                Refill::Fully => {}
                Refill::AtMost(count) => {
                    // The next reconcile asks again.
                    refill_at = (plan.create > count).then(Instant::now);
                    plan.create = plan.create.min(count);
                }
                Refill::NotBefore(at) => {
                    plan.create = 0;
                    refill_at = Some(at);
                }
            }
        }
        for sandbox in context.waiting.first(key, plan.ready) {
            context.sandbox_queue.add(sandbox);
        }
        let (result, retry_at) = self.carry_out(key, &pool, &template, &pods, &plan).await;
        let problem = match &result {
            Err(error) => Some(error.to_string()),
            Ok(()) => pods.iter().find_map(WarmPod::problem).map(str::to_owned),
        };
        let mut observation = Observation::new(plan, problem);
        let puller = &self.image_puller;
        let pulls = puller.pull(context, key, &pool, &template).await;
        let pulls_at = pulls.as_ref().map(|(_, next)| *next);
        observation.image_pulls = pulls.map(|(progress, _)| progress);
        let report_at = self.report(key, &pool, observation).await?;
        result?;
        let resize_at = pool.spec.demand.map(|_| Instant::now() + RESIZE_INTERVAL);
        let lacks_volume = pods.iter().any(|pod| lacks_volume(&pod.facts));
        let volume_at = lacks_volume.then(|| Instant::now() + VOLUME_DELAY.unsigned_abs());
        let times = [
            refill_at, retry_at, report_at, resize_at, volume_at, pulls_at,
        ];
        Ok(times.into_iter().flatten().min())
    }

    /// Number of warm Pods that a pool is to have.
    fn replicas(&self, key: &Key, pool: &Pool) -> usize {
        let number = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let least = number(pool.spec.replicas);
        let Some(demand) = pool.spec.demand else {
            return least;
        };
        let before = number(pool.status.desired);
        let wanted = self.context.demand.size(key, demand.hits, before);
        wanted.min(number(demand.max_replicas)).max(least)
    }

    /// Reads Pods of claims whose outcome is unknown: the API server did not answer.
    async fn settle_claims(&self, pool: &Key) -> Result<(), CallError> {
        let (warm, api) = (&self.context.warm_pods, self.context.api::<SlimPod>(pool));
        for pod in warm.of(pool).iter().filter(|pod| pod.is_overdue()) {
            let facts = &pod.facts;
            match with_timeout(api.get_opt(&facts.name)).await? {
                Some(found) => self.context.pods.observe(&found),
                None => warm.remove(pool.clone(), &facts.name, &facts.uid),
            }
            warm.give_back(pool, &facts.uid);
        }
        Ok(())
    }

    /// Deletes and creates Pods. Returns also the time at which ended Pods may be replaced.
    async fn carry_out(
        &self,
        key: &Key,
        pool: &Pool,
        template: &WarmTemplate,
        pods: &[WarmPod],
        plan: &PoolPlan,
    ) -> (Result<(), PoolError>, Option<Instant>) {
        let now = self.context.clock.now();
        if pods.iter().any(|pod| pod.has_ended() && !pod.is_ending()) {
            self.memory.record_replacement(key, now);
        }
        if let Err(error) = self.delete_pods(key, pods, &plan.delete).await {
            return (Err(error), None);
        }
        if let Err(error) = self
            .create_missing_volumes(key, pool, &template.spec, pods)
            .await
        {
            return (Err(error), None);
        }
        let earliest = self.memory.earliest_replacement(key, now);
        if let Some(at) = earliest.filter(|at| plan.create > 0 && *at > now) {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            return (Ok(()), Some(Instant::now() + wait));
        }
        let created = self.create_pods(key, pool, template, plan.create);
        (created.await, None)
    }

    async fn create_pods(
        &self,
        key: &Key,
        pool: &Pool,
        template: &WarmTemplate,
        count: usize,
    ) -> Result<(), PoolError> {
        if count == 0 {
            return Ok(());
        }
        self.isolate(key).await?;
        let owner = pool_ref(key, pool);
        let creations = (0..count.min(MAX_BATCH)).map(|_| self.create_pod(key, &owner, template));
        let mut creations = stream::iter(creations).buffer_unordered(MAX_CONCURRENT_WRITES);
        // The first error ends it: the others would meet the same.
        while creations.try_next().await?.is_some() {}
        Ok(())
    }

    async fn create_pod(
        &self,
        pool: &Key,
        owner: &PoolRef,
        template: &WarmTemplate,
    ) -> Result<(), PoolError> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| PoolError::Random)?;
        let key = Key {
            namespace: pool.namespace.clone(),
            name: names::warm_pod(&pool.name, &random),
        };
        let is_small = template.idle.is_some() && is_supported(&self.context).await?;
        let pods = self.warm_pods();
        let pod = pods.build(key.clone(), owner, template, is_small)?;
        let (client, namespace) = (&self.context.client, &pool.namespace);
        let created: SlimPod = create_owned(client, namespace, &pod, &owner.uid).await?;
        self.context.warm_pods.apply(pool.clone(), &created, false);
        let uid = created.metadata.uid.unwrap_or_default();
        self.create_volume(key, owner, &template.spec, &uid).await
    }

    /// Creates the PVC of a Pod, if the template has a workspace. The Pod waits for it.
    async fn create_volume(
        &self,
        pod: Key,
        owner: &PoolRef,
        spec: &SandboxSpec,
        pod_uid: &str,
    ) -> Result<(), PoolError> {
        let (client, namespace) = (&self.context.client, pod.namespace.clone());
        if let Some(volume) = self.warm_pods().volume(pod, owner, spec, pod_uid)? {
            let _: PersistentVolumeClaim =
                create_owned(client, &namespace, &volume, pod_uid).await?;
        }
        Ok(())
    }

    /// Creates PVCs that Pods lack: the controller ended between the two.
    async fn create_missing_volumes(
        &self,
        key: &Key,
        pool: &Pool,
        spec: &SandboxSpec,
        pods: &[WarmPod],
    ) -> Result<(), PoolError> {
        let owner = pool_ref(key, pool);
        let young = self.context.clock.now() - VOLUME_DELAY;
        let facts = pods.iter().map(|pod| &pod.facts);
        for facts in facts.filter(|facts| facts.created_at.is_none_or(|at| at < young)) {
            if lacks_volume(facts) {
                let pod = Key {
                    namespace: key.namespace.clone(),
                    name: facts.name.clone(),
                };
                self.create_volume(pod, &owner, spec, &facts.uid).await?;
            }
        }
        Ok(())
    }

    async fn delete_pods(
        &self,
        pool: &Key,
        pods: &[WarmPod],
        uids: &[String],
    ) -> Result<(), PoolError> {
        let mut deletions = Vec::new();
        for pod in pods {
            if uids.contains(&pod.facts.uid) {
                deletions.push(self.delete_pod(pool, pod));
            }
        }
        let mut deletions = stream::iter(deletions).buffer_unordered(MAX_CONCURRENT_WRITES);
        while deletions.try_next().await?.is_some() {}
        Ok(())
    }

    async fn delete_pod(&self, pool: &Key, pod: &WarmPod) -> Result<(), PoolError> {
        let (warm, uid) = (&self.context.warm_pods, &pod.facts.uid);
        if !warm.take(pool, uid) {
            return Ok(());
        }
        let api = self.context.api::<SlimPod>(pool);
        match delete(&api, &pod.facts.name, Some(uid), None).await {
            Ok(_) => {
                warm.remove(pool.clone(), &pod.facts.name, uid);
                Ok(())
            }
            Err(error) => {
                warm.give_back(pool, uid);
                Err(error.into())
            }
        }
    }

    /// Writes the status if it has changed, at most every second. Returns the time of a write that
    /// has to wait.
    async fn report(
        &self,
        key: &Key,
        pool: &Pool,
        mut observation: Observation,
    ) -> Result<Option<Instant>, CallError> {
        let next = self.statuses.next_write(key);
        if next.is_some() {
            return Ok(next);
        }
        let context = &self.context;
        observation.claimed = context.pods.count_claimed(key);
        let statuses = &self.statuses;
        statuses.write(context, key, pool, &observation).await?;
        Ok(None)
    }

    async fn isolate(&self, pool: &Key) -> Result<(), CreateError> {
        let context = &self.context;
        let (namespace, now) = (&pool.namespace, context.clock.now());
        if context.isolation.is_due(namespace, now) {
            let api = context.api(pool);
            context.isolation.ensure(&api, namespace, now).await?;
        }
        Ok(())
    }

    fn warm_pods(&self) -> WarmPods<'_> {
        WarmPods {
            config: &self.context.config,
            keys: &self.context.keys,
        }
    }
}

/// Finishes a reconcile even if it panics; otherwise the pool would never be handed out again.
struct QueueGuard<'a> {
    queue: &'a WorkQueue<Key>,
    key: &'a Key,
    outcome: Outcome,
}

enum Outcome {
    Failed,
    /// With the time of the next reconcile.
    Succeeded(Option<Instant>),
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let Outcome::Succeeded(next) = self.outcome else {
            return self
                .queue
                .requeue_with_backoff(self.key, MAX_OUTAGE_BACKOFF);
        };
        self.queue.done(self.key);
        if let Some(at) = next {
            self.queue.add_at(self.key.clone(), at);
        }
    }
}

/// Returns whether the Pod waits for a PVC that does not exist.
fn lacks_volume(facts: &PodFacts) -> bool {
    facts.is_missing_claim(&names::workspace_claim(&facts.name))
}

fn pool_ref(key: &Key, pool: &Pool) -> PoolRef {
    PoolRef {
        name: key.name.clone(),
        uid: pool.uid.clone(),
    }
}
