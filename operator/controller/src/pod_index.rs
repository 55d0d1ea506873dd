//! Index of the sandboxes' Pods, fed by a watch and by the controller's own writes. A change
//! requeues the sandbox. Pods that are still warm are passed on to their own index.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::facts::PodFacts;
use crate::pod_meter::{MeteredPod, PodMeter, PodUse};
use crate::pools::warm_pods::WarmPodIndex;
use crds::{Sandbox, SandboxPool, names};
use shared::clock::Clock;
use shared::index::Key;
use shared::index::deleted_uids::DeletedUids;
use shared::kubernetes::slim::SlimPod;
use shared::kubernetes::watch::WatchSink;
use shared::kubernetes::work_queue::WorkQueue;

#[derive(Debug)]
pub(crate) struct PodIndex {
    clock: Clock,
    queue: Arc<WorkQueue<Key>>,
    warm: Arc<WarmPodIndex>,
    meter: Arc<PodMeter>,
    tables: RwLock<Tables>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By key of the sandbox. It has one Pod at a time; a second one is deleted.
    by_sandbox: HashMap<Key, Vec<IndexedPod>>,
    /// Deleted Pods: a late event must not bring one back.
    deleted_pods: DeletedUids,
    /// Sandboxes that owned a deleted Pod.
    owners_with_deleted_pod: DeletedUids,
}

#[derive(Debug)]
struct IndexedPod {
    key: Key,
    sandbox: Key,
    /// Pool in the label of the Pod.
    pool: Option<Key>,
    owner_uid: String,
    version: Option<u64>,
    facts: Arc<PodFacts>,
    _metered: Option<MeteredPod>,
}

impl PodIndex {
    pub(crate) fn new(
        clock: Clock,
        queue: Arc<WorkQueue<Key>>,
        warm: Arc<WarmPodIndex>,
        meter: Arc<PodMeter>,
    ) -> Self {
        Self {
            clock,
            queue,
            warm,
            meter,
            tables: RwLock::default(),
            synced: watch::Sender::new(false),
        }
    }

    /// Pod of the sandbox with this uid. Of several, it is the one that `named` names, or else the
    /// first that was made; terminating ones come last.
    pub(crate) fn get(
        &self,
        sandbox: &Key,
        uid: &str,
        named: Option<&str>,
    ) -> Option<Arc<PodFacts>> {
        let tables = self.tables.read();
        let pods = tables.of(sandbox).filter(|pod| pod.owner_uid == uid);
        let first = pods.min_by_key(|pod| {
            let facts = &pod.facts;
            let is_other = named != Some(facts.name.as_str());
            (
                facts.grace_ends_at.is_some(),
                is_other,
                facts.created_at,
                &facts.name,
            )
        });
        first.map(|pod| pod.facts.clone())
    }

    /// Another Pod of a sandbox than this one. Two controllers may each have provided one, when the
    /// writes of the first were late.
    pub(crate) fn surplus(&self, sandbox: &Key, uid: &str, pod: &str) -> Option<Arc<PodFacts>> {
        let tables = self.tables.read();
        let mut pods = tables.of(sandbox).filter(|other| other.owner_uid == uid);
        let other = pods.find(|other| other.facts.uid != pod);
        other.map(|other| other.facts.clone())
    }

    /// Terminating Pod of a deleted sandbox of this name: any Pod whose owner has not this uid.
    pub(crate) fn orphan(&self, sandbox: &Key, uid: Option<&str>) -> Option<Arc<PodFacts>> {
        let tables = self.tables.read();
        let mut orphans = tables.of(sandbox).filter(|pod| {
            let is_terminating = pod.facts.grace_ends_at.is_some();
            is_terminating && Some(pod.owner_uid.as_str()) != uid
        });
        orphans.next().map(|pod| pod.facts.clone())
    }

    /// Number of sandboxes with a Pod of this pool.
    pub(crate) fn count_claimed(&self, pool: &Key) -> usize {
        let tables = self.tables.read();
        let pods = tables.by_sandbox.values().flatten();
        pods.filter(|indexed| indexed.facts.was_warm() && indexed.pool.as_ref() == Some(pool))
            .count()
    }

    /// Indexes a Pod that was read, warm or not.
    pub(crate) fn observe(&self, pod: &SlimPod) {
        if let Some(pool) = owning_pool(&pod.metadata) {
            return self.warm.apply(pool, pod, true);
        }
        let meta = &pod.metadata;
        if let (None, Some(pool), Some(uid)) = (owner(meta), labelled_pool(meta), &meta.uid) {
            // It belongs to neither a pool nor a sandbox any more.
            self.warm.remove(pool, &pod.name_any(), uid);
        }
        self.apply(pod);
    }

    /// Sandboxes that have a Pod, or had one when they were deleted.
    pub(crate) fn sandboxes(&self) -> Vec<Key> {
        self.tables.read().by_sandbox.keys().cloned().collect()
    }

    /// Returns whether a Pod of this sandbox was deleted recently.
    pub(crate) fn has_lost_pod(&self, sandbox_uid: &str) -> bool {
        self.tables
            .read()
            .owners_with_deleted_pod
            .contains(sandbox_uid)
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Indexes a Pod as read or written. An older version than the indexed one is ignored. A
    /// deleted one is ignored as well, but its sandbox is requeued, because a reconcile may be
    /// about to wait for the Pod.
    pub(crate) fn apply(&self, pod: &SlimPod) {
        let Some(mut indexed) = IndexedPod::read(pod, &self.meter) else {
            return;
        };
        let is_claimed = indexed.facts.was_warm();
        if let Some(pool) = indexed.pool.clone().filter(|_| is_claimed) {
            // It was claimed.
            let facts = &indexed.facts;
            self.warm.remove_claimed(pool, &facts.name, &facts.uid);
        }
        let mut tables = self.tables.write();
        if tables.deleted_pods.contains(&indexed.facts.uid) {
            drop(tables);
            return self.queue.add(indexed.sandbox);
        }
        let sandbox = indexed.sandbox.clone();
        let pods = tables.by_sandbox.entry(sandbox.clone()).or_default();
        // A Pod that has the name of an earlier one takes its place.
        let at = pods.iter().position(|known| known.key == indexed.key);
        let known = at.map(|at| &pods[at]);
        if known.is_some_and(|known| known.version > indexed.version) {
            return;
        }
        indexed.stamp_first_seen(known.map(|k| &*k.facts), self.clock);
        let changed = known.is_none_or(|known| known.facts != indexed.facts);
        if let Some(at) = at {
            pods.swap_remove(at);
        }
        pods.push(indexed);
        drop(tables);
        match changed {
            true if is_claimed => self.queue.add_first(sandbox),
            true => self.queue.add(sandbox),
            false => {}
        }
    }

    /// Removes a Pod that was deleted. The index knows its owner better than the caller.
    pub(crate) fn forget(&self, sandbox: &Key, owner_uid: Option<&str>, pod_uid: &str) {
        let removed = self.drop_pod(sandbox, pod_uid);
        if let Some(pool) = removed.as_ref().and_then(|pod| pod.pool.clone()) {
            self.warm.requeue(pool);
        }
        let mut tables = self.tables.write();
        tables.deleted_pods.insert(pod_uid);
        let owner = removed.as_ref().map(|pod| pod.owner_uid.as_str());
        if let Some(owner_uid) = owner.or(owner_uid) {
            tables.owners_with_deleted_pod.insert(owner_uid);
        }
        drop(tables);
        if removed.is_some() {
            self.queue.add(sandbox.clone());
        }
    }

    /// Returns the Pod if it was indexed.
    fn drop_pod(&self, sandbox: &Key, pod_uid: &str) -> Option<IndexedPod> {
        let mut tables = self.tables.write();
        let pods = tables.by_sandbox.get_mut(sandbox)?;
        let at = pods.iter().position(|pod| pod.facts.uid == pod_uid)?;
        let removed = pods.swap_remove(at);
        if pods.is_empty() {
            tables.by_sandbox.remove(sandbox);
        }
        Some(removed)
    }
}

impl WatchSink<SlimPod> for PodIndex {
    fn apply(&self, pod: SlimPod) {
        self.observe(&pod);
    }

    fn remove(&self, key: &Key, meta: &ObjectMeta) {
        if let (Some(pool), Some(uid)) = (owning_pool(meta), &meta.uid) {
            return self.warm.remove(pool, &key.name, uid);
        }
        if let (Some(owner), Some(sandbox), Some(uid)) = (owner(meta), sandbox(meta), &meta.uid) {
            self.forget(&sandbox, Some(&owner.uid), uid);
        }
    }

    fn retain(&self, seen: &HashSet<Key>) {
        let gone: Vec<_> = {
            let tables = self.tables.read();
            let all = tables.by_sandbox.values().flatten();
            let gone = all.filter(|pod| !seen.contains(&pod.key));
            gone.map(|pod| (pod.sandbox.clone(), pod.facts.uid.clone()))
                .collect()
        };
        for (sandbox, pod) in gone {
            // Not remembered as deleted: the list may be older than the controller's own write.
            if self.drop_pod(&sandbox, &pod).is_some() {
                self.queue.add(sandbox);
            }
        }
        self.warm.retain(seen);
        self.synced.send_replace(true);
    }
}

impl Tables {
    fn of(&self, sandbox: &Key) -> impl Iterator<Item = &IndexedPod> {
        self.by_sandbox.get(sandbox).into_iter().flatten()
    }
}

impl IndexedPod {
    fn read(pod: &SlimPod, meter: &Arc<PodMeter>) -> Option<Self> {
        let facts = PodFacts::read(pod)?;
        Some(Self {
            _metered: meter.track(PodUse::Sandbox, pod),
            key: Key {
                namespace: pod.namespace()?,
                name: facts.name.clone(),
            },
            sandbox: sandbox(&pod.metadata)?,
            pool: labelled_pool(&pod.metadata),
            owner_uid: owner(&pod.metadata)?.uid.clone(),
            version: pod.resource_version().and_then(|v| v.parse().ok()),
            facts: Arc::new(facts),
        })
    }

    /// Dates a start problem and the end of a grace period by the controller's clock. Pods do not
    /// tell the start of a problem, and the API server's clock may differ.
    fn stamp_first_seen(&mut self, known: Option<&PodFacts>, clock: Clock) {
        let facts = Arc::make_mut(&mut self.facts);
        if facts.grace_ends_at.is_some() {
            let seen = known
                .filter(|k| k.uid == facts.uid)
                .and_then(|k| k.grace_ends_at);
            facts.grace_ends_at = seen.or_else(|| clock.now().checked_add(facts.grace).ok());
        }
        let known = known.and_then(|k| k.start_problem.as_ref());
        let Some(problem) = &mut facts.start_problem else {
            return;
        };
        let since = known
            .filter(|k| k.kind == problem.kind)
            .and_then(|k| k.since);
        problem.since = Some(since.unwrap_or_else(|| clock.now()));
    }
}

fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    owner_of_kind::<Sandbox>(meta)
}

fn owner_of_kind<K: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true) && o.kind == K::kind(&()))
}

/// Pool of a Pod that no sandbox has claimed.
fn owning_pool(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: owner_of_kind::<SandboxPool>(meta)?.name.clone(),
    })
}

/// Pool of a Pod that a sandbox may have claimed.
fn labelled_pool(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: meta.labels.as_ref()?.get(names::POOL_LABEL)?.clone(),
    })
}

fn sandbox(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: owner(meta)?.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use shared::metrics::ControllerMetrics;

    use super::*;
    use crate::tests::key;

    fn pod(uid: &str, version: u32) -> SlimPod {
        let owner = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "name": "a",
            "uid": "sandbox", "controller": true});
        let metadata = json!({"namespace": "ns", "name": "a", "uid": uid,
            "resourceVersion": version.to_string(), "ownerReferences": [owner]});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn pods() -> (PodIndex, Arc<WorkQueue<Key>>) {
        let queue = Arc::new(WorkQueue::default());
        queue.open();
        let meter = PodMeter::new(ControllerMetrics::default());
        let warm = Arc::new(WarmPodIndex::new(Arc::default(), meter.clone()));
        let index = PodIndex::new(Clock::wall(), queue.clone(), warm, meter);
        (index, queue)
    }

    fn known(pods: &PodIndex) -> Option<String> {
        pods.get(&key("a"), "sandbox", None)
            .map(|pod| pod.uid.clone())
    }

    #[tokio::test]
    async fn late_event_does_not_restore_deleted_pod() {
        let (pods, queue) = pods();
        pods.apply(&pod("first", 1));
        assert!(!pods.has_lost_pod("sandbox"));
        WatchSink::remove(&pods, &queue.next().await.0, &pod("first", 2).metadata);
        assert!(pods.has_lost_pod("sandbox"));
        pods.apply(&pod("first", 3));
        assert_eq!(known(&pods), None);
        pods.apply(&pod("second", 4));
        assert_eq!(known(&pods).as_deref(), Some("second"));
    }

    #[tokio::test]
    async fn late_create_response_requeues_without_restoring_pod() {
        let (pods, queue) = pods();
        WatchSink::remove(&pods, &key("a"), &pod("first", 2).metadata);
        assert_eq!(queue.depth(), 0);
        pods.apply(&pod("first", 1));
        assert_eq!((known(&pods), queue.depth()), (None, 1));
    }

    #[tokio::test]
    async fn pod_missing_from_list_can_return() {
        let (pods, _queue) = pods();
        pods.apply(&pod("first", 1));
        WatchSink::retain(&pods, &HashSet::new());
        assert_eq!(known(&pods), None);
        pods.apply(&pod("first", 1));
        assert_eq!(known(&pods).as_deref(), Some("first"));
    }
}
