//! Keeps the warm Pods of each pool at their number. Only the leader runs it. A change of a pool or
//! of its Pods requeues the pool.

mod pod_writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::names;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Pool;
use super::image_pulls::ImagePuller;
use super::plan::{PoolPlan, plan};
use super::refill::Refill;
use super::replacements::Replacements;
use super::shape::WarmTemplate;
use super::status::{Observation, StatusWriter};
use super::template::{TemplateError, warm_template};
use super::warm_pods::WarmPod;
use crate::context::Context;
use crate::facts::PodFacts;
use crate::reconcile::build::BuildError;
use crate::snapshots::source::node_of_volume;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::owned_objects::CreateError;
use shared::kubernetes::slim::SlimPod;
use shared::kubernetes::work_queue::{MAX_OUTAGE_BACKOFF, WorkQueue};

/// Pools that are reconciled at once.
const MAX_CONCURRENT_POOLS: usize = 8;
/// Time for reconciles to end on shutdown: slightly more than the time limit of one call.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// Time after which a pool with demand is looked at again: demand is forgotten.
const RESIZE_INTERVAL: Duration = Duration::from_mins(1);
/// Longest start of a Pod if sandboxes have no start timeout.
const MAX_START: Duration = Duration::from_hours(1);
/// Age of a Pod whose PVC is no longer being created by this process.
const VOLUME_DELAY: SignedDuration = SignedDuration::from_secs(15);
/// Time limit of one reconcile.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Maintenance of the warm Pods.
pub(crate) struct PoolReconciler {
    context: Arc<Context>,
    replacements: Replacements,
    /// Error of the last reconcile, by pool.
    errors: Mutex<HashMap<Key, String>>,
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

impl PoolError {
    /// Error category for metrics.
    fn category(&self) -> &'static str {
        match self {
            Self::Build(_) => "invalid",
            Self::Create(error) => error.category(),
            Self::Call(error) => error.category(),
            Self::Discovery(_) => "discovery",
            Self::Random => "random",
        }
    }
}

impl PoolReconciler {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context,
            replacements: Replacements::default(),
            errors: Mutex::default(),
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
        let began = Instant::now();
        let metrics = &self.context.metrics;
        let (failure, category) = match timeout(TIME_LIMIT, self.reconcile(&key)).await {
            Ok(Ok(next)) => {
                guard.outcome = Outcome::Succeeded(next);
                metrics.record_success(began.elapsed());
                return;
            }
            Ok(Err(error)) => (error.to_string(), error.category()),
            Err(_) => (
                "the reconcile exceeded its time limit".to_owned(),
                "timeout",
            ),
        };
        metrics.record_failure(category, began.elapsed());
        self.warn_once(&key, &failure);
    }

    /// Logs an error unless the last reconcile of the pool met the same.
    fn warn_once(&self, key: &Key, error: &str) {
        let last = self.errors.lock().insert(key.clone(), error.to_owned());
        if last.as_deref() != Some(error) {
            tracing::warn!(pool = %key, error, "cannot maintain a pool");
        }
    }

    /// Creates and deletes Pods, and writes the status. Returns the time of the next reconcile.
    async fn reconcile(&self, key: &Key) -> Result<Option<Instant>, PoolError> {
        let context = &self.context;
        let pool = context.pools.get(key);
        let Some(pool) = pool.filter(|pool| !pool.is_deleting) else {
            // Kubernetes deletes the warm Pods with the pool. Claimed ones belong to their sandboxes.
            self.replacements.forget(key);
            self.errors.lock().remove(key);
            context.warm_pods.forget(key);
            self.statuses.forget(key);
            self.image_puller.forget(key);
            context.demand.forget(key);
            return Ok(None);
        };
        self.settle_claims(key).await?;
        let template = match warm_template(context, key, &pool) {
            Ok(template) => template,
            Err(error) => return self.block(key, &pool, &error).await,
        };
        let pods = context.warm_pods.of(key);
        for pod in &pods {
            context.injection.record_pod(&pod.facts);
        }
        let replicas = self.replicas(key, &pool);
        let oldest_start = self.oldest_start(&template);
        let mut plan = plan(
            &pool.spec,
            replicas,
            &template.revision,
            &pods,
            oldest_start,
        );
        let mut refill_at = None;
        let source = pool.source();
        let node = source.and_then(|source| node_of_volume(context, key, source));
        if source.is_some() && node.is_none() {
            // Nothing uses the volume of the snapshot yet. The next reconcile, when the first Pod is
            // ready, creates the others on its node.
            plan.create = plan.create.min(1_usize.saturating_sub(plan.starting));
        }
        if plan.create > 0 {
            match context
                .warm_pods
                .refill(key, plan.ready, context.sandbox_queue.is_busy())
            {
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
        let (result, retry_at) = self
            .carry_out(key, &pool, &template, &pods, &plan, node.as_deref())
            .await;
        let problem = match &result {
            Err(error) => Some(error.to_string()),
            Ok(()) => pods.iter().find_map(|pod| pod.problem()),
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
        let overdue_at = pods.iter().filter_map(|pod| pod.overdue_at()).min();
        let stuck_at = next_stuck(&pods, oldest_start);
        let times = [
            refill_at, retry_at, report_at, resize_at, volume_at, pulls_at, overdue_at, stuck_at,
        ];
        self.errors.lock().remove(key);
        Ok(times.into_iter().flatten().min())
    }

    /// Reports that no Pod can be made from the template. Those of before stay, unless its snapshot is
    /// gone: they would keep its volume.
    async fn block(
        &self,
        key: &Key,
        pool: &Pool,
        error: &TemplateError,
    ) -> Result<Option<Instant>, PoolError> {
        self.warn_once(key, &error.to_string());
        let pods = self.context.warm_pods.of(key);
        if matches!(error, TemplateError::NoSnapshot(_)) {
            let all: Vec<_> = pods.iter().map(|pod| pod.facts.uid.clone()).collect();
            self.delete_pods(key, &pods, &all).await?;
        }
        let plan = PoolPlan::blocked(self.replicas(key, pool), &pods);
        let observation = Observation::new(plan, Some(error.to_string()));
        let report_at = self.report(key, pool, observation).await?;
        let overdue_at = pods.iter().filter_map(|pod| pod.overdue_at());
        Ok(overdue_at.chain(report_at).min())
    }

    /// Pods that were created before and are not ready are replaced.
    fn oldest_start(&self, template: &WarmTemplate) -> Timestamp {
        let lifecycle = &self.context.config.defaults.lifecycle;
        let deadlines = lifecycle.overridden(template.spec.lifecycle.as_ref());
        let limit = deadlines.start_timeout.unwrap_or(MAX_START);
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let now = self.context.clock.now();
        now.checked_sub(limit).unwrap_or(Timestamp::MIN)
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
        let now = Instant::now();
        for pod in warm.of(pool) {
            if pod.overdue_at().is_none_or(|at| at > now) {
                continue;
            }
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
        pods: &[Arc<WarmPod>],
        plan: &PoolPlan,
        node: Option<&str>,
    ) -> (Result<(), PoolError>, Option<Instant>) {
        if plan.ended > 0 {
            self.replacements.record(key, plan.ended);
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
        let held = self.replacements.held_back(key);
        let held = held.filter(|_| plan.create > 0);
        let count = plan.create.saturating_sub(held.map_or(0, |(pods, _)| pods));
        let created = self.create_pods(key, pool, template, node, count);
        (created.await, held.map(|(_, until)| until))
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
        let shape = |key: &Key, pool: &Pool| {
            let template = warm_template(context, key, pool).ok()?;
            Some(template.shape.clone())
        };
        let own = shape(key, pool);
        let has_shape = |at: &Key, other: &Pool| own.is_some() && shape(at, other) == own;
        observation.overlap = context.pools.overlapping(key, pool, has_shape);
        let statuses = &self.statuses;
        statuses.write(context, key, pool, &observation).await?;
        Ok(None)
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

/// Time at which the first Pod that is still starting has taken too long.
fn next_stuck(pods: &[Arc<WarmPod>], oldest_start: Timestamp) -> Option<Instant> {
    let starting = pods.iter().filter(|pod| !pod.is_ready());
    let left = starting
        .filter_map(|pod| pod.facts.created_at)
        .filter_map(|at| Duration::try_from(at.duration_since(oldest_start)).ok());
    left.min().map(|left| Instant::now() + left)
}

/// Returns whether the Pod waits for a PVC that does not exist.
fn lacks_volume(facts: &PodFacts) -> bool {
    facts.is_missing_claim(&names::workspace_claim(&facts.name))
}
