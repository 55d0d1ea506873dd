//! Snapshots by name, fed by a watch and by own writes. A change wakes the sandboxes that wait for
//! the snapshot.

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

/// All snapshots.
#[derive(Debug)]
pub(crate) struct SnapshotIndex {
    known: RwLock<BTreeMap<Key, Arc<SandboxSnapshot>>>,
    sandboxes: Arc<Index>,
    sandbox_queue: Arc<WorkQueue<Key>>,
    pub(super) queue: WorkQueue<Key>,
}

impl SnapshotIndex {
    pub(crate) fn new(sandboxes: Arc<Index>, sandbox_queue: Arc<WorkQueue<Key>>) -> Self {
        Self {
            known: RwLock::default(),
            sandboxes,
            sandbox_queue,
            queue: WorkQueue::default(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<SandboxSnapshot>> {
        self.known.read().get(key).cloned()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.known.read().keys().cloned().collect()
    }

    /// Uids of the snapshots on a volume, but for this one.
    pub(super) fn others_of(&self, namespace: &str, claim: &str, uid: &str) -> Vec<String> {
        let known = self.known.read();
        let on_volume = known.iter().filter(|(key, snapshot)| {
            let status = snapshot.status.as_ref();
            let has_claim = status.and_then(|status| status.claim.as_deref()) == Some(claim);
            key.namespace == namespace && has_claim && snapshot.phase() != SnapshotPhase::Failed
        });
        let uids = on_volume.filter_map(|(_, snapshot)| snapshot.uid());
        uids.filter(|other| other != uid).collect()
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

    /// Requeues a snapshot and the sandboxes that begin with it.
    fn announce(&self, key: &Key) {
        self.queue.add(key.clone());
        let waits =
            |name: &Key, source: &str| name.namespace == key.namespace && source == key.name;
        let waiting = self.sandboxes.list(|entry| {
            let source = entry.spec.source.as_ref();
            source.is_some_and(|source| waits(&entry.key, &source.snapshot))
        });
        for entry in waiting {
            self.sandbox_queue.add(entry.key.clone());
        }
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
        self.announce(&key);
    }

    fn remove(&self, key: &Key, _: &ObjectMeta) {
        self.known.write().remove(key);
        self.announce(key);
    }

    fn retain(&self, seen: &HashSet<Key>) {
        self.known.write().retain(|key, _| seen.contains(key));
        for key in seen {
            self.announce(key);
        }
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
