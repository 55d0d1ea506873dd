//! Creations and deletions of the warm Pods of a pool, and of their PVCs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crds::names;
use crds::sandbox::SandboxSpec;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Preconditions;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::{PoolError, PoolReconciler, VOLUME_DELAY, lacks_volume};
use crate::admission_search::AdmissionSearch;
use crate::pools::Pool;
use crate::pools::resize::is_supported;
use crate::pools::shape::{WarmPods, WarmTemplate};
use crate::pools::warm_pods::{UnansweredCreation, WarmPod};
use crate::reconcile::build::pod::bind_to_node;
use crate::reconcile::build::{PoolRef, runtime_class};
use shared::index::Key;
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::owned_objects::{CreateError, create_owned, delete};
use shared::kubernetes::slim::SlimPod;

/// Pods of one pool that are created or deleted at once. More would delay claims.
const MAX_CONCURRENT_WRITES: usize = 4;
/// Pods of one pool that one reconcile creates. The rest follows in the next one.
const MAX_BATCH: usize = 32;

impl PoolReconciler {
    pub(super) async fn create_pods(
        &self,
        key: &Key,
        pool: &Pool,
        template: &WarmTemplate,
        node: Option<&str>,
        count: usize,
    ) -> Result<(), PoolError> {
        if count == 0 {
            return Ok(());
        }
        self.isolate(key).await?;
        let owner = pool_ref(key, pool);
        let create = |_| self.create_pod(key, &owner, template, node);
        let creations = (0..count.min(MAX_BATCH)).map(create);
        until_first_error(creations.collect()).await
    }

    async fn create_pod(
        &self,
        pool: &Key,
        owner: &PoolRef,
        template: &WarmTemplate,
        node: Option<&str>,
    ) -> Result<(), PoolError> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| PoolError::Random)?;
        let (warm, namespace) = (&self.context.warm_pods, &pool.namespace);
        let name = warm.take_unanswered(pool);
        let key = Key {
            namespace: namespace.clone(),
            name: name.unwrap_or_else(|| names::warm_pod(&pool.name, &random)),
        };
        let is_small = template.idle.is_some() && is_supported(&self.context).await?;
        let mut creation = UnansweredCreation {
            index: warm,
            pool,
            name: &key.name,
            is_answered: false,
        };
        let created = self
            .create_admitted_pod(&key, owner, template, is_small, node)
            .await;
        creation.is_answered = match &created {
            Err(PoolError::Create(CreateError::Call(error))) => {
                error.code().is_some_and(|code| code < 500)
            }
            _ => true,
        };
        drop(creation);
        let created = created?;
        warm.apply(pool.clone(), &created, false);
        let uid = created.metadata.uid.unwrap_or_default();
        self.create_volume(key, owner, &template.spec, &uid).await
    }

    /// Creates the Pod with the highest persistence that policies admit. Each rejection leads to less,
    /// so that there are at most four attempts.
    async fn create_admitted_pod(
        &self,
        key: &Key,
        owner: &PoolRef,
        template: &WarmTemplate,
        is_small: bool,
        node: Option<&str>,
    ) -> Result<SlimPod, PoolError> {
        let (context, namespace) = (&*self.context, &key.namespace);
        let requested = template.spec.runtime_class_name.as_deref();
        let mut search = AdmissionSearch::new(context, namespace, requested);
        let class = runtime_class::of_pod(&template.spec, &context.config, false);
        loop {
            let pods = WarmPods {
                features: search.admitted(context.pod_features(class)),
                ..context.warm_pod_builder()
            };
            let mut pod = pods.build(key.clone(), owner, template, is_small)?;
            if let Some(node) = node {
                bind_to_node(&mut pod, node);
            }
            let created = create_owned(&context.client, namespace, &pod, &owner.uid).await;
            match created {
                Err(error) if search.descend(&pod, &error) => {}
                Err(error) => return Err(error.into()),
                Ok(created) => {
                    search.record(context);
                    return Ok(created);
                }
            }
        }
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
        if let Some(volume) = self
            .context
            .warm_pod_builder()
            .volume(pod, owner, spec, pod_uid)?
        {
            let _: PersistentVolumeClaim =
                create_owned(client, &namespace, &volume, pod_uid).await?;
        }
        Ok(())
    }

    /// Creates PVCs that Pods lack: the controller ended between the two.
    pub(super) async fn create_missing_volumes(
        &self,
        key: &Key,
        pool: &Pool,
        spec: &SandboxSpec,
        pods: &[Arc<WarmPod>],
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

    pub(super) async fn delete_pods(
        &self,
        pool: &Key,
        pods: &[Arc<WarmPod>],
        uids: &[String],
    ) -> Result<(), PoolError> {
        let mut deletions = Vec::new();
        for pod in pods {
            if uids.contains(&pod.facts.uid) {
                deletions.push(self.delete_pod(pool, pod));
            }
        }
        until_first_error(deletions).await
    }

    async fn delete_pod(&self, pool: &Key, pod: &WarmPod) -> Result<(), PoolError> {
        let (warm, uid) = (&self.context.warm_pods, &pod.facts.uid);
        if !warm.take(pool, uid) {
            return Ok(());
        }
        let (api, name) = (self.context.api::<SlimPod>(pool), &pod.facts.name);
        // A Pod that has changed may have been claimed by the leader before.
        let unchanged = Preconditions {
            uid: Some(uid.clone()),
            resource_version: Some(pod.resource_version.clone()),
        };
        match delete(&api, name, Some(unchanged), None).await {
            Ok(_) => warm.remove(pool.clone(), name, uid),
            Err(error) if error.is_conflict() => {
                if let Some(found) = with_timeout(api.get_opt(name)).await? {
                    self.context.pods.observe(&found);
                }
                warm.give_back(pool, uid);
            }
            Err(error) => {
                warm.give_back(pool, uid);
                return Err(error.into());
            }
        }
        Ok(())
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
}

/// Carries out a few writes at a time. After an error those that have begun are finished, because
/// their outcome matters, and no other begins: it would meet the same error.
async fn until_first_error<W: Future<Output = Result<(), PoolError>>>(
    writes: Vec<W>,
) -> Result<(), PoolError> {
    let has_failed = AtomicBool::new(false);
    let mut attempts = Vec::new();
    for write in writes {
        attempts.push(async {
            if has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let result = write.await;
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        });
    }
    let attempts = stream::iter(attempts).buffer_unordered(MAX_CONCURRENT_WRITES);
    let results: Vec<_> = attempts.collect().await;
    results.into_iter().collect()
}

fn pool_ref(key: &Key, pool: &Pool) -> PoolRef {
    PoolRef {
        name: key.name.clone(),
        uid: pool.uid.clone(),
    }
}
