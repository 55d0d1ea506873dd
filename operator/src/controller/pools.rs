//! `SandboxPool`s as templates: what a Sandbox leaves open is filled in from the pool it names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crds::SandboxPool;
use crds::pool::SandboxPoolSpec;
use crds::sandbox::{EnvVar, Lifecycle, SandboxSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::index::{Index, Key};
use crate::kubernetes::queue::Queue;
use crate::kubernetes::watch::Sink;

/// Index of pools.
#[derive(Debug)]
pub(crate) struct Pools {
    index: Arc<Index>,
    queue: Arc<Queue<Key>>,
    specs: RwLock<HashMap<Key, Arc<SandboxPoolSpec>>>,
    synced: watch::Sender<bool>,
}

impl Pools {
    pub(crate) fn new(index: Arc<Index>, queue: Arc<Queue<Key>>) -> Self {
        Self {
            index,
            queue,
            specs: RwLock::default(),
            synced: watch::Sender::new(false),
        }
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// The spec with what its pool supplies; `None` if there is no such pool.
    pub(crate) fn resolve(
        &self,
        namespace: &str,
        spec: &Arc<SandboxSpec>,
    ) -> Option<Arc<SandboxSpec>> {
        let Some(pool) = &spec.pool else {
            return Some(spec.clone());
        };
        let key = Key {
            namespace: namespace.to_owned(),
            name: pool.clone(),
        };
        let pool = self.specs.read().get(&key).cloned()?;
        Some(Arc::new(filled(spec, &pool)))
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
        let known = self
            .specs
            .write()
            .insert(key.clone(), Arc::new(pool.spec.clone()));
        if known.is_none_or(|known| *known != pool.spec) {
            self.announce(&key);
        }
    }

    fn remove(&self, key: &Key, _: &ObjectMeta) {
        self.specs.write().remove(key);
    }

    fn retain(&self, seen: &HashSet<Key>) {
        self.specs.write().retain(|key, _| seen.contains(key));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crds::pool::PoolTemplate;

    fn env(name: &str, value: &str) -> EnvVar {
        EnvVar {
            name: name.into(),
            value: Some(value.into()),
            value_from: None,
        }
    }

    #[test]
    fn a_pool_fills_only_what_is_open() {
        let spec = SandboxSpec {
            pool: Some("p".into()),
            working_dir: Some("/own".into()),
            env: vec![env("A", "own")],
            ..SandboxSpec::default()
        };
        let pool = SandboxPoolSpec {
            template: PoolTemplate {
                image: "pool:1".into(),
                working_dir: Some("/pool".into()),
                env: vec![env("A", "pool"), env("B", "pool")],
                ..PoolTemplate::default()
            },
            ..SandboxPoolSpec::default()
        };
        let filled = filled(&spec, &pool);
        assert_eq!(filled.image.as_deref(), Some("pool:1"));
        assert_eq!(filled.working_dir.as_deref(), Some("/own"));
        assert_eq!(filled.env, [env("B", "pool"), env("A", "own")]);
    }
}
