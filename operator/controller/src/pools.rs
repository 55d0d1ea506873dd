//! SandboxPools: their index, the fields that a Sandbox takes from the template of its pool, and
//! their warm Pods.

pub(crate) mod claim;
pub(crate) mod demand;
pub(crate) mod fixed_variables;
pub(crate) mod idle_resources;
mod image_pulls;
mod plan;
mod prestart;
pub(crate) mod reconciler;
pub(crate) mod recovery;
mod refill;
mod replacements;
pub(crate) mod resize;
pub(crate) mod shape;
mod status;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub(crate) mod waiting;
pub(crate) mod warm_pods;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crds::SandboxPool;
use crds::pool::{ClaimPolicy, SandboxPoolSpec, SandboxPoolStatus, WhenExhausted};
use crds::sandbox::{EnvVar, Lifecycle, PoolSnapshot, SandboxSpec, Source};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use ring::digest::{SHA256, digest};
use serde::{Deserialize as _, Serialize};
use tokio::sync::watch;

use self::shape::WarmTemplate;
use shared::index::{Entry, Index, Key};
use shared::kubernetes::watch::WatchSink;
use shared::kubernetes::work_queue::WorkQueue;

/// Time that sandboxes wait for a warm Pod by default, if the pool makes them wait.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// Index of pools.
#[derive(Debug)]
pub(crate) struct PoolIndex {
    index: Arc<Index>,
    queue: Arc<WorkQueue<Key>>,
    by_key: RwLock<HashMap<Key, Arc<Pool>>>,
    synced: watch::Sender<bool>,
    /// Pools whose warm Pods and status may be out of date.
    pool_queue: Arc<WorkQueue<Key>>,
}

type Table<'a> = RwLockWriteGuard<'a, HashMap<Key, Arc<Pool>>>;

/// One pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    uid: String,
    version: Option<u64>,
    generation: i64,
    spec: SandboxPoolSpec,
    status: SandboxPoolStatus,
    /// It goes after its Pods: none is created or claimed any more.
    is_deleting: bool,
    /// Template of its warm Pods, built once for each snapshot that they begin with.
    warm_template: Mutex<Option<Arc<WarmTemplate>>>,
    /// Hash of the template.
    pub(crate) revision: String,
    /// The part of the spec that sandboxes keep.
    pub(crate) snapshot: Arc<PoolSnapshot>,
}

impl Pool {
    pub(super) fn new(name: String, spec: SandboxPoolSpec) -> Self {
        let revision = hash(&spec.template);
        let kept = SandboxPoolSpec {
            template: spec.template.clone(),
            lifecycle: spec.lifecycle.clone(),
            ..SandboxPoolSpec::default()
        };
        let snapshot = PoolSnapshot {
            name,
            revision: revision.clone(),
            // A spec from the API server can always be serialized.
            spec: serde_json::to_value(kept).unwrap_or_default(),
        };
        Self {
            revision,
            snapshot: Arc::new(snapshot),
            spec,
            ..Self::default()
        }
    }

    fn read(pool: SandboxPool) -> Self {
        let name = pool.name_any();
        Self {
            uid: pool.uid().unwrap_or_default(),
            version: pool.resource_version().and_then(|v| v.parse().ok()),
            generation: pool.metadata.generation.unwrap_or_default(),
            is_deleting: pool.metadata.deletion_timestamp.is_some(),
            status: pool.status.unwrap_or_default(),
            ..Self::new(name, pool.spec)
        }
    }

    /// Returns whether this is a later state of the same pool.
    fn is_newer_than(&self, other: &Self) -> bool {
        let versions = self.version.zip(other.version);
        self.uid == other.uid && versions.is_some_and(|(this, that)| this > that)
    }

    /// Returns the spec with the fields that this pool supplies.
    pub(crate) fn fill(&self, spec: &SandboxSpec) -> SandboxSpec {
        filled(spec, &self.spec)
    }
}

impl Pool {
    /// Returns whether it never has warm Pods.
    pub(crate) fn is_plain(&self) -> bool {
        self.spec.replicas == 0 && self.spec.demand.is_none()
    }

    /// Snapshot that its sandboxes begin with, unless they name another one.
    pub(crate) fn source(&self) -> Option<&Source> {
        self.spec.template.source.as_ref()
    }

    /// Tenants whose sandboxes may claim its Pods. None are named: all.
    pub(crate) fn tenants(&self) -> &[String] {
        &self.spec.tenants
    }

    /// Returns whether its size depends on demand.
    pub(crate) fn grows(&self) -> bool {
        self.spec.demand.is_some()
    }

    /// Time that a sandbox waits for a warm Pod: 0 if it never does, `None` if it is refused.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        match self.spec.when_exhausted {
            _ if self.is_plain() => Some(Duration::ZERO),
            WhenExhausted::ColdStart => Some(Duration::ZERO),
            WhenExhausted::Wait => Some(self.spec.max_wait.map_or(DEFAULT_MAX_WAIT, Into::into)),
            WhenExhausted::Refuse => None,
        }
    }
}

/// First 16 hex digits of a hash of the JSON form.
pub(crate) fn hash(value: &impl Serialize) -> String {
    // Templates of the API server and Pods can be serialized.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let hash = digest(&SHA256, &text);
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

impl PoolIndex {
    pub(crate) fn new(
        index: Arc<Index>,
        queue: Arc<WorkQueue<Key>>,
        pool_queue: Arc<WorkQueue<Key>>,
    ) -> Self {
        Self {
            index,
            queue,
            by_key: RwLock::default(),
            synced: watch::Sender::new(false),
            pool_queue,
        }
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Pools whose warm Pods a sandbox may claim, by name.
    pub(crate) fn claimable(&self, entry: &Entry) -> Vec<(Key, Arc<Pool>)> {
        let named = entry.pool();
        let tenant = entry.session().map(|session| &session.tenant);
        let pools = self.by_key.read();
        let may_claim = |key: &Key, pool: &Pool| {
            let is_chosen = match &named {
                Some(named) => named == key,
                None => pool.spec.claimed_by == ClaimPolicy::Matching,
            };
            let tenants = &pool.spec.tenants;
            let is_tenant = tenants.is_empty() || tenant.is_some_and(|own| tenants.contains(own));
            let is_near = key.namespace == entry.key.namespace;
            is_chosen && is_tenant && is_near && !pool.is_deleting
        };
        let found = pools.iter().filter(|(key, pool)| may_claim(key, pool));
        let found = found.map(|(key, pool)| (key.clone(), pool.clone()));
        let mut found: Vec<_> = found.collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }

    /// Pool of the same template that sandboxes of both claim from first, by name.
    fn overlapping(
        &self,
        key: &Key,
        pool: &Pool,
        has_shape: impl Fn(&Key, &Pool) -> bool,
    ) -> Option<String> {
        let shares_tenant = |other: &Pool| {
            let (ours, theirs) = (&pool.spec.tenants, &other.spec.tenants);
            let is_open = ours.is_empty() || theirs.is_empty();
            is_open || ours.iter().any(|tenant| theirs.contains(tenant))
        };
        let is_served_first = |(at, other): &(&Key, &Arc<Pool>)| {
            let is_before = at.namespace == key.namespace && at.name < key.name;
            let matches = |pool: &Pool| pool.spec.claimed_by == ClaimPolicy::Matching;
            let is_used =
                matches(pool) && matches(other) && !other.is_plain() && !other.is_deleting;
            is_before && is_used && shares_tenant(other) && has_shape(at, other)
        };
        let pools = self.by_key.read();
        let found = pools.iter().filter(is_served_first);
        found.map(|(at, _)| at.name.clone()).min()
    }

    /// Pool that a spec names, if it exists.
    pub(crate) fn find(&self, namespace: &str, spec: &SandboxSpec) -> Option<Arc<Pool>> {
        let key = Key {
            namespace: namespace.to_owned(),
            name: spec.pool.clone()?,
        };
        self.by_key.read().get(&key).cloned()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Pool>> {
        self.by_key.read().get(key).cloned()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_key.read().keys().cloned().collect()
    }

    /// Stores the response to a status write. It may be late: the pool may have been changed,
    /// deleted or replaced since.
    fn apply_written(&self, key: &Key, pool: SandboxPool) {
        let pool = Pool::read(pool);
        let pools = self.by_key.write();
        let known = pools.get(key).filter(|known| known.uid == pool.uid);
        if known.is_some_and(|known| !known.is_newer_than(&pool)) {
            self.replace(pools, key, pool);
        }
    }

    fn replace(&self, mut pools: Table<'_>, key: &Key, pool: Pool) {
        let spec = pool.spec.clone();
        let known = pools.insert(key.clone(), Arc::new(pool));
        drop(pools);
        self.pool_queue.add(key.clone());
        if known.is_none_or(|known| known.spec != spec) {
            // Fields that it supplies may have changed.
            self.requeue_sandboxes(key, |_| true);
        }
    }

    /// Requeues the pools whose sandboxes begin with a snapshot for which `concerns` holds, and their
    /// sandboxes.
    pub(crate) fn requeue_with_snapshots(&self, concerns: impl Fn(&Key) -> bool) {
        let begins = |(key, pool): &(&Key, &Arc<Pool>)| {
            let source = pool.source();
            source.is_some_and(|source| concerns(&key.sibling(&source.snapshot)))
        };
        let pools = self.by_key.read();
        let found = pools.iter().filter(begins).map(|(key, _)| key.clone());
        let found: Vec<_> = found.collect();
        drop(pools);
        for pool in found {
            // Those that were ready once have begun.
            self.requeue_sandboxes(&pool, |entry| entry.status.ready_at.is_none());
            self.pool_queue.add(pool);
        }
    }

    /// Requeues sandboxes of this pool.
    fn requeue_sandboxes(&self, pool: &Key, concerns: impl Fn(&Entry) -> bool) {
        let sandboxes = self.index.list(|e| {
            let is_near = e.key.namespace == pool.namespace;
            is_near && e.spec.pool.as_ref() == Some(&pool.name) && concerns(e)
        });
        for entry in sandboxes {
            self.queue.add(entry.key.clone());
        }
    }
}

impl WatchSink<SandboxPool> for PoolIndex {
    fn apply(&self, pool: SandboxPool) {
        let Some(namespace) = pool.namespace() else {
            return;
        };
        let key = Key {
            namespace,
            name: pool.name_any(),
        };
        let pool = Pool::read(pool);
        let pools = self.by_key.write();
        // The event may be older than the response to an own write.
        if pools
            .get(&key)
            .is_none_or(|known| !known.is_newer_than(&pool))
        {
            self.replace(pools, &key, pool);
        }
    }

    fn remove(&self, key: &Key, _: &ObjectMeta) {
        self.by_key.write().remove(key);
        self.pool_queue.add(key.clone());
    }

    fn retain(&self, seen: &HashSet<Key>) {
        self.by_key.write().retain(|key, _| {
            let is_there = seen.contains(key);
            if !is_there {
                self.pool_queue.add(key.clone());
            }
            is_there
        });
        self.synced.send_replace(true);
    }
}

/// Completes a spec from the pool revision that the sandbox was made from. `None` if it was made
/// from another pool or from none.
pub(crate) fn fill_from_snapshot(spec: &SandboxSpec, kept: &PoolSnapshot) -> Option<SandboxSpec> {
    let pool = SandboxPoolSpec::deserialize(&kept.spec).ok()?;
    (spec.pool.as_ref() == Some(&kept.name)).then(|| filled(spec, &pool))
}

fn filled(spec: &SandboxSpec, pool: &SandboxPoolSpec) -> SandboxSpec {
    let template = &pool.template;
    let own = spec.clone();
    SandboxSpec {
        image: own.image.or_else(|| Some(template.image.clone())),
        image_pull_policy: own.image_pull_policy.or(template.image_pull_policy),
        command: own.command.or_else(|| template.command.clone()),
        working_dir: own.working_dir.or_else(|| template.working_dir.clone()),
        env: merged(own.env, &template.env),
        executor: own.executor.or(template.executor),
        plugins: if own.plugins.is_empty() {
            template.plugins.clone()
        } else {
            own.plugins
        },
        resources: own.resources.or_else(|| template.resources.clone()),
        resource_factor: own.resource_factor.or(template.resource_factor),
        runtime_class_name: own
            .runtime_class_name
            .or_else(|| template.runtime_class_name.clone()),
        security_context: own
            .security_context
            .or_else(|| template.security_context.clone()),
        ports: if own.ports.is_empty() {
            template.ports.clone()
        } else {
            own.ports
        },
        workspace: own.workspace.or_else(|| template.workspace.clone()),
        persistence: own.persistence.or(template.persistence),
        source: own.source.or_else(|| template.source.clone()),
        lifecycle: lifecycle(own.lifecycle, pool.lifecycle.as_ref()),
        pod_template: own.pod_template.or_else(|| template.pod_template.clone()),
        ..own
    }
}

/// Variables of the pool that `own` does not set, then `own`, which may refer to them.
fn merged(own: Vec<EnvVar>, pool: &[EnvVar]) -> Vec<EnvVar> {
    let absent = |item: &&EnvVar| own.iter().all(|o| o.name != item.name);
    let mut items: Vec<_> = pool.iter().filter(absent).cloned().collect();
    items.extend(own);
    items
}

fn lifecycle(own: Option<Lifecycle>, pool: Option<&Lifecycle>) -> Option<Lifecycle> {
    let (Some(own), Some(pool)) = (&own, pool) else {
        return own.or_else(|| pool.cloned());
    };
    Some(Lifecycle {
        idle_timeout: own.idle_timeout.or(pool.idle_timeout),
        max_run_time: own.max_run_time.or(pool.max_run_time),
        start_timeout: own.start_timeout.or(pool.start_timeout),
        delete_paused_after: own.delete_paused_after.or(pool.delete_paused_after),
        delete_stopped_after: own.delete_stopped_after.or(pool.delete_stopped_after),
        warm_resume_for: own.warm_resume_for.or(pool.warm_resume_for),
    })
}
