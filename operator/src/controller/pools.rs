//! `SandboxPool`s as templates: what a Sandbox leaves open is filled in from the pool it names.

pub(super) mod report;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crds::SandboxPool;
use crds::pool::{PoolTemplate, SandboxPoolSpec, SandboxPoolStatus};
use crds::sandbox::{EnvVar, Lifecycle, SandboxSpec};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::{RwLock, RwLockWriteGuard};
use ring::digest::{SHA256, digest};
use tokio::sync::{Notify, watch};

use crate::index::{Index, Key};
use crate::kubernetes::queue::Queue;
use crate::kubernetes::watch::Sink;

/// Index of pools.
#[derive(Debug)]
pub(crate) struct Pools {
    index: Arc<Index>,
    queue: Arc<Queue<Key>>,
    by_key: RwLock<HashMap<Key, Arc<Pool>>>,
    synced: watch::Sender<bool>,
    /// There may be something to say of a pool.
    changed: Notify,
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
    /// Stands for the template: another one has another one.
    pub(crate) revision: String,
}

impl Pool {
    fn new(spec: SandboxPoolSpec) -> Self {
        Self {
            revision: revision(&spec.template),
            spec,
            ..Self::default()
        }
    }

    fn read(pool: SandboxPool) -> Self {
        Self {
            uid: pool.uid().unwrap_or_default(),
            version: pool.resource_version().and_then(|v| v.parse().ok()),
            generation: pool.metadata.generation.unwrap_or_default(),
            status: pool.status.unwrap_or_default(),
            ..Self::new(pool.spec)
        }
    }

    /// Whether this is a later state of the same pool.
    fn is_after(&self, other: &Self) -> bool {
        let versions = self.version.zip(other.version);
        self.uid == other.uid && versions.is_some_and(|(this, that)| this > that)
    }

    /// A spec with what this pool supplies.
    pub(crate) fn fill(&self, spec: &SandboxSpec) -> SandboxSpec {
        filled(spec, &self.spec)
    }
}

/// The beginning of a hash.
fn revision(template: &PoolTemplate) -> String {
    // What has no JSON form never came from the API server.
    let text = serde_json::to_vec(template).unwrap_or_default();
    let hash = digest(&SHA256, &text);
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

impl Pools {
    pub(crate) fn new(index: Arc<Index>, queue: Arc<Queue<Key>>) -> Self {
        Self {
            index,
            queue,
            by_key: RwLock::default(),
            synced: watch::Sender::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// The pool that a spec names, if there is one of that name.
    pub(crate) fn of(&self, namespace: &str, spec: &SandboxSpec) -> Option<Arc<Pool>> {
        let key = Key {
            namespace: namespace.to_owned(),
            name: spec.pool.clone()?,
        };
        self.by_key.read().get(&key).cloned()
    }

    /// Pools, with their uids, whose status is not what it should be.
    fn reports(&self, now: Timestamp) -> Vec<(Key, String, SandboxPoolStatus)> {
        let pools = self.by_key.read();
        let due = pools.iter().filter_map(|(key, pool)| {
            let status = report::status(pool, now)?;
            Some((key.clone(), pool.uid.clone(), status))
        });
        due.collect()
    }

    /// Takes in the answer to a write. It may be late: the pool may be gone by now, or have been written
    /// by somebody else, or another one may have its name.
    fn written(&self, key: &Key, pool: SandboxPool) {
        let pool = Pool::read(pool);
        let pools = self.by_key.write();
        let known = pools.get(key).filter(|known| known.uid == pool.uid);
        if known.is_some_and(|known| !known.is_after(&pool)) {
            self.replace(pools, key, pool);
        }
    }

    fn replace(&self, mut pools: Table<'_>, key: &Key, pool: Pool) {
        let spec = pool.spec.clone();
        let known = pools.insert(key.clone(), Arc::new(pool));
        drop(pools);
        self.changed.notify_one();
        if known.is_none_or(|known| known.spec != spec) {
            self.announce(key);
        }
    }

    /// Asks for passes over the sandboxes of this pool: what it supplies, deadlines included, may
    /// be something else now.
    fn announce(&self, pool: &Key) {
        let waiting = self.index.list(|e| {
            e.key.namespace == pool.namespace && e.spec.pool.as_ref() == Some(&pool.name)
        });
        for entry in waiting {
            self.queue.add(entry.key.clone());
        }
    }
}

impl Sink<SandboxPool> for Pools {
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
        // It may be from before our own write.
        if pools.get(&key).is_none_or(|known| !known.is_after(&pool)) {
            self.replace(pools, &key, pool);
        }
    }

    fn remove(&self, key: &Key, _: &ObjectMeta) {
        self.by_key.write().remove(key);
    }

    fn retain(&self, seen: &HashSet<Key>) {
        self.by_key.write().retain(|key, _| seen.contains(key));
        self.synced.send_replace(true);
    }
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
        resources: own.resources.or_else(|| template.resources.clone()),
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
        lifecycle: lifecycle(own.lifecycle, pool.lifecycle.as_ref()),
        pod_template: own.pod_template.or_else(|| template.pod_template.clone()),
        ..own
    }
}

/// The pool's variables that `own` does not set, then `own`, which may refer to them.
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
    })
}
