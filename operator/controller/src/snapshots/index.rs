//! Snapshots by name, fed by a watch and by own writes. A change wakes the sandboxes and the pools
//! that begin with the snapshot.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crds::SandboxSnapshot;
use crds::snapshot::SnapshotPhase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::RwLock;
use shared::index::{Index, Key};
use shared::kubernetes::watch::WatchSink;
use shared::kubernetes::work_queue::WorkQueue;
use tokio::sync::watch;

use crate::pools::PoolIndex;

/// All snapshots.
#[derive(Debug)]
pub(crate) struct SnapshotIndex {
    known: RwLock<BTreeMap<Key, Arc<SandboxSnapshot>>>,
    sandboxes: Arc<Index>,
    sandbox_queue: Arc<WorkQueue<Key>>,
    pools: Arc<PoolIndex>,
    pub(super) queue: WorkQueue<Key>,
    synced: watch::Sender<bool>,
}

impl SnapshotIndex {
    pub(crate) fn new(
        sandboxes: Arc<Index>,
        sandbox_queue: Arc<WorkQueue<Key>>,
        pools: Arc<PoolIndex>,
    ) -> Self {
        Self {
            pools,
            known: RwLock::default(),
            sandboxes,
            sandbox_queue,
            queue: WorkQueue::default(),
            synced: watch::Sender::new(false),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<SandboxSnapshot>> {
        self.known.read().get(key).cloned()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.known.read().keys().cloned().collect()
    }

    /// Waits for the first complete list.
    pub(super) async fn wait_synced(&self) {
        // The sender lives in the index, so this cannot fail.
        let _ = self.synced.subscribe().wait_for(|done| *done).await;
    }

    /// Forgets a snapshot that was deleted or replaced.
    pub(super) fn forget(&self, snapshot: &SandboxSnapshot) {
        if let Some(key) = key(&snapshot.metadata) {
            self.remove(&key, &snapshot.metadata);
        }
    }

    /// Returns whether an older snapshot of the sandbox is not finished: they are taken one after the
    /// other.
    pub(super) fn has_earlier(&self, key: &Key, snapshot: &SandboxSnapshot) -> bool {
        let order = |key: &Key, snapshot: &SandboxSnapshot| {
            let created_at = snapshot.creation_timestamp().map(|at| at.0);
            (created_at, key.name.clone())
        };
        let own = order(key, snapshot);
        self.known.read().iter().any(|(other_key, other)| {
            other_key.namespace == key.namespace
                && other.spec.sandbox == snapshot.spec.sandbox
                && matches!(
                    other.phase(),
                    SnapshotPhase::Pending | SnapshotPhase::Saving
                )
                && order(other_key, other) < own
        })
    }

    /// Returns whether snapshots that exist are known.
    pub(super) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Requeues snapshots, and the sandboxes and pools that begin with one for which `concerns` holds.
    fn announce(&self, changed: &HashSet<Key>, concerns: impl Fn(&Key) -> bool) {
        for key in changed {
            self.queue.add(key.clone());
        }
        let waiting = self.sandboxes.list(|entry| {
            let source = entry.spec.source.as_ref();
            source.is_some_and(|source| concerns(&entry.key.sibling(&source.snapshot)))
        });
        for entry in waiting {
            self.sandbox_queue.add(entry.key.clone());
        }
        self.pools.requeue_with_snapshots(concerns);
    }

    fn announce_one(&self, key: &Key) {
        self.announce(&HashSet::from([key.clone()]), |other| other == key);
    }
}

impl WatchSink<SandboxSnapshot> for SnapshotIndex {
    fn apply(&self, snapshot: SandboxSnapshot) {
        let Some(key) = key(&snapshot.metadata) else {
            return;
        };
        let mut known = self.known.write();
        if let Some(before) = known.get(&key)
            && version(before) > version(&snapshot)
        {
            return;
        }
        known.insert(key.clone(), Arc::new(snapshot));
        drop(known);
        self.announce_one(&key);
    }

    fn remove(&self, key: &Key, meta: &ObjectMeta) {
        let mut known = self.known.write();
        if known
            .get(key)
            .is_some_and(|own| own.metadata.uid == meta.uid)
        {
            known.remove(key);
        }
        drop(known);
        self.announce_one(key);
    }

    fn retain(&self, seen: &HashSet<Key>) {
        let mut changed = seen.clone();
        changed.extend(self.keys());
        self.known.write().retain(|key, _| seen.contains(key));
        // Until now none was missing: what waits for one that does not exist has to learn it.
        let is_first = !self.synced.send_replace(true);
        self.announce(&changed, |key| is_first || changed.contains(key));
    }
}

fn key(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: meta.name.clone()?,
    })
}

fn version(snapshot: &SandboxSnapshot) -> u64 {
    let version = snapshot.resource_version();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
