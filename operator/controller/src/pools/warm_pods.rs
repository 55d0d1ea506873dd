//! Warm Pods in memory, by pool. Claims and the maintenance of the pools take them from here, so
//! that no Pod is claimed twice or deleted while it is claimed.

mod warm_pod;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::refill::{REFILL_DELAY, RecentClaims, Refill};
use crate::facts::SnapshotIdentity;
use crate::pod_meter::PodMeter;
use shared::index::Key;
use shared::index::deleted_uids::DeletedUids;
use shared::kubernetes::slim::SlimPod;
use shared::kubernetes::work_queue::WorkQueue;
pub(crate) use warm_pod::WarmPod;
use warm_pod::{OVERDUE, Taken};

/// Time after a change of a Pod until its pool is reconciled, with all changes of this time.
const CHANGE_DELAY: Duration = Duration::from_millis(20);

/// Warm Pods of all pools. A change requeues the pool.
#[derive(Debug)]
pub(crate) struct WarmPodIndex {
    queue: Arc<WorkQueue<Key>>,
    meter: Arc<PodMeter>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By key of the pool and name of the Pod.
    by_pool: HashMap<Key, BTreeMap<String, Arc<WarmPod>>>,
    /// Claims since the last full refill, by pool.
    claims: HashMap<Key, RecentClaims>,
    /// Names of Pods whose creation the API server has not answered, by pool.
    unanswered: HashMap<Key, BTreeSet<String>>,
    /// Claimed or deleted Pods: a late event must not bring one back.
    gone: DeletedUids,
}

/// A creation that the API server has not answered yet. If it never does, the next Pod of the pool
/// gets the same name: it cannot be created twice.
#[derive(Debug)]
pub(super) struct UnansweredCreation<'a> {
    pub(super) index: &'a WarmPodIndex,
    pub(super) pool: &'a Key,
    pub(super) name: &'a str,
    pub(super) is_answered: bool,
}

impl Drop for UnansweredCreation<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let mut tables = self.index.tables.lock();
            let names = tables.unanswered.entry(self.pool.clone()).or_default();
            names.insert(self.name.to_owned());
        }
    }
}

impl WarmPodIndex {
    pub(crate) fn new(queue: Arc<WorkQueue<Key>>, meter: Arc<PodMeter>) -> Self {
        Self {
            queue,
            meter,
            tables: Mutex::default(),
        }
    }

    /// All Pods of a pool.
    pub(crate) fn of(&self, pool: &Key) -> Vec<Arc<WarmPod>> {
        let tables = self.tables.lock();
        let pods = tables.by_pool.get(pool);
        pods.into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    /// Numbers of all Pods: ready to be claimed, and others.
    pub(crate) fn count(&self) -> (usize, usize) {
        let tables = self.tables.lock();
        let pods = tables.by_pool.values().flat_map(BTreeMap::values);
        let (ready, others): (Vec<_>, Vec<_>) = pods.partition(|pod| pod.is_ready());
        (ready.len(), others.len())
    }

    /// Pools that have a Pod.
    pub(crate) fn pools(&self) -> Vec<Key> {
        self.tables.lock().by_pool.keys().cloned().collect()
    }

    /// Node of a ready Pod beside this snapshot, whose volume may be attached to no other one.
    pub(crate) fn node_beside(
        &self,
        namespace: &str,
        snapshot: &SnapshotIdentity,
    ) -> Option<String> {
        let tables = self.tables.lock();
        let pools = tables.by_pool.iter();
        let near = pools.filter(|(pool, _)| pool.namespace == namespace);
        let mut pods = near.flat_map(|(_, pods)| pods.values());
        let beside =
            pods.find(|pod| pod.facts.snapshot.as_ref() == Some(snapshot) && pod.is_ready());
        beside?.facts.node.clone()
    }

    /// Returns whether the pool has Pods.
    pub(crate) fn has_any(&self, pool: &Key) -> bool {
        self.tables.lock().by_pool.contains_key(pool)
    }

    /// Returns whether more ready Pods of this shape exist than `ahead`, or one that this sandbox has
    /// begun to claim.
    pub(crate) fn has_ready(&self, pool: &Key, shape: &str, ahead: usize, sandbox: &str) -> bool {
        let tables = self.tables.lock();
        let pods = tables.by_pool.get(pool);
        let pods = pods.into_iter().flat_map(BTreeMap::values);
        let mut ready = 0;
        let mut fitting = pods.filter(|pod| pod.shape == shape);
        fitting.any(|pod| {
            ready += usize::from(pod.is_ready());
            ready > ahead || pod.is_claimed_by(sandbox)
        })
    }

    /// Takes a Pod of this shape for a claim: the one that this sandbox has begun to claim, or the
    /// oldest that is ready.
    pub(crate) fn take_ready(
        &self,
        pool: &Key,
        shape: &str,
        sandbox: &str,
    ) -> Option<Arc<WarmPod>> {
        let mut tables = self.tables.lock();
        let pods = tables.by_pool.get_mut(pool)?.values_mut();
        let fitting = pods.filter(|pod| {
            let is_free = pod.is_ready() || pod.is_claimed_by(sandbox);
            pod.shape == shape && is_free
        });
        let first = fitting.min_by_key(|pod| {
            let is_other = !pod.is_claimed_by(sandbox);
            (is_other, pod.facts.created_at, pod.version())
        })?;
        let found = first.clone();
        Arc::make_mut(first).taken = Some(Taken {
            at: Instant::now(),
            by: Some(sandbox.to_owned()),
        });
        drop(tables);
        self.queue.add_at(pool.clone(), Instant::now() + OVERDUE);
        Some(found)
    }

    /// Takes a Pod for its deletion. `false` if it has been taken or is gone.
    pub(crate) fn take(&self, pool: &Key, uid: &str) -> bool {
        let mut tables = self.tables.lock();
        let pods = tables.by_pool.get_mut(pool);
        let mut pods = pods.into_iter().flat_map(BTreeMap::values_mut);
        let found = pods.find(|pod| pod.facts.uid == uid && pod.taken.is_none());
        found.is_some_and(|pod| {
            Arc::make_mut(pod).taken = Some(Taken {
                at: Instant::now(),
                by: None,
            });
            true
        })
    }

    /// Gives a taken Pod back after a write that did not happen.
    pub(crate) fn give_back(&self, pool: &Key, uid: &str) {
        let mut tables = self.tables.lock();
        let pods = tables.by_pool.get_mut(pool);
        let mut pods = pods.into_iter().flat_map(BTreeMap::values_mut);
        if let Some(pod) = pods.find(|pod| pod.facts.uid == uid) {
            Arc::make_mut(pod).taken = None;
        }
        drop(tables);
        self.queue.add(pool.clone());
    }

    /// Stores a Pod as created or read.
    pub(crate) fn apply(&self, pool: Key, pod: &SlimPod, is_confirmed: bool) {
        let Some(mut pod) = WarmPod::read(pod, is_confirmed, &self.meter) else {
            return;
        };
        let mut tables = self.tables.lock();
        if tables.gone.contains(&pod.facts.uid) {
            return;
        }
        let pods = tables.by_pool.entry(pool.clone()).or_default();
        if let Some(known) = pods.get_mut(&pod.facts.name) {
            if is_confirmed && !known.is_confirmed {
                Arc::make_mut(known).is_confirmed = true;
            }
            if known.version() >= pod.version() {
                return;
            }
            let is_same = known.facts.uid == pod.facts.uid;
            pod.taken = known.taken.clone().filter(|_| is_same);
            pod.is_confirmed = known.is_confirmed;
        }
        pods.insert(pod.facts.name.clone(), Arc::new(pod));
        drop(tables);
        self.queue.add_at(pool, Instant::now() + CHANGE_DELAY);
    }

    /// Requeues a pool whose claimed Pods have changed.
    pub(crate) fn requeue(&self, pool: Key) {
        self.queue.add_at(pool, Instant::now() + CHANGE_DELAY);
    }

    /// Removes a Pod that was deleted.
    pub(crate) fn remove(&self, pool: Key, name: &str, uid: &str) {
        if self.tables.lock().drop_gone(&pool, name, uid) {
            self.queue.add(pool);
        }
    }

    /// Removes a Pod that was claimed.
    pub(crate) fn remove_claimed(&self, pool: Key, name: &str, uid: &str) {
        let (mut tables, now) = (self.tables.lock(), Instant::now());
        if tables.drop_gone(&pool, name, uid) {
            tables.add_claim(&pool, now);
            drop(tables);
            self.queue.add_at(pool, now + REFILL_DELAY);
        }
    }

    /// Records a sandbox that found no ready Pod: a pool in demand is refilled beside it.
    pub(crate) fn record_miss(&self, pool: &Key) {
        self.tables.lock().add_claim(pool, Instant::now());
    }

    /// Drops what is known about claims from a pool that is gone.
    pub(crate) fn forget(&self, pool: &Key) {
        let mut tables = self.tables.lock();
        tables.claims.remove(pool);
        tables.unanswered.remove(pool);
    }

    /// Name of a Pod of the pool whose creation was not answered, and that no watch has shown.
    pub(super) fn take_unanswered(&self, pool: &Key) -> Option<String> {
        let mut tables = self.tables.lock();
        let Tables {
            unanswered,
            by_pool,
            ..
        } = &mut *tables;
        let (names, pods) = (unanswered.get_mut(pool)?, by_pool.get(pool));
        names.retain(|name| pods.is_none_or(|pods| !pods.contains_key(name)));
        names.pop_first()
    }

    /// Permission to refill a pool with so many ready Pods. The queue of sandboxes is busy as long as
    /// some of them are starting.
    pub(crate) fn refill(&self, pool: &Key, ready: usize, is_busy: bool) -> Refill {
        let (mut tables, now) = (self.tables.lock(), Instant::now());
        let pods = tables.by_pool.get(pool);
        let mut pods = pods.into_iter().flat_map(BTreeMap::values);
        let is_claiming = is_busy || pods.any(|pod| pod.is_being_claimed());
        let Some(claims) = tables.claims.get_mut(pool) else {
            return Refill::Fully;
        };
        let refill = claims.refill(ready, is_claiming, now);
        if refill == Refill::Fully {
            tables.claims.remove(pool);
        }
        refill
    }

    /// Removes what a list did not contain. Creations that no watch has shown yet may be newer than
    /// the list.
    pub(crate) fn retain(&self, seen: &HashSet<Key>) {
        let mut tables = self.tables.lock();
        let missing: Vec<_> = tables
            .by_pool
            .iter()
            .flat_map(|(pool, pods)| pods.values().map(move |pod| (pool, pod)))
            .filter(|(pool, pod)| {
                let key = Key {
                    namespace: pool.namespace.clone(),
                    name: pod.facts.name.clone(),
                };
                pod.is_confirmed && !seen.contains(&key)
            })
            .map(|(pool, pod)| (pool.clone(), pod.facts.name.clone()))
            .collect();
        for (pool, name) in &missing {
            tables.drop_pod(pool, name);
        }
        drop(tables);
        for (pool, _) in missing {
            self.queue.add(pool);
        }
    }
}

impl Tables {
    /// Drops a Pod for good. Returns whether it was there.
    fn drop_gone(&mut self, pool: &Key, name: &str, uid: &str) -> bool {
        self.gone.insert(uid);
        let known = self.by_pool.get(pool).and_then(|pods| pods.get(name));
        let is_known = known.is_some_and(|known| known.facts.uid == uid);
        if is_known {
            self.drop_pod(pool, name);
        }
        is_known
    }

    fn add_claim(&mut self, pool: &Key, now: Instant) {
        match self.claims.get_mut(pool) {
            Some(claims) => claims.add(now),
            None => {
                self.claims.insert(pool.clone(), RecentClaims::new(now));
            }
        }
    }

    fn drop_pod(&mut self, pool: &Key, name: &str) {
        if let Some(pods) = self.by_pool.get_mut(pool) {
            pods.remove(name);
            if pods.is_empty() {
                self.by_pool.remove(pool);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
