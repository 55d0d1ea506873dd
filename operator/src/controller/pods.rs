//! Pods of sandboxes, by the uid of the sandbox that owns them. Fed by a watch and by our own
//! writes; a change that matters asks for a pass over the sandbox.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::facts::PodFacts;
use crate::clock::Clock;
use crate::index::Key;
use crate::kubernetes::queue::Queue;
use crate::kubernetes::slim::SlimPod;
use crate::kubernetes::watch::Sink;
use crds::Sandbox;

/// Index of Pods.
#[derive(Debug)]
pub(crate) struct Pods {
    clock: Clock,
    queue: Arc<Queue<Key>>,
    by_owner: RwLock<HashMap<String, Held>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug)]
struct Held {
    /// The Pod's own key.
    key: Key,
    /// The sandbox's key.
    sandbox: Key,
    version: Option<u64>,
    facts: Arc<PodFacts>,
}

impl Pods {
    pub(crate) fn new(clock: Clock, queue: Arc<Queue<Key>>) -> Self {
        Self {
            clock,
            queue,
            by_owner: RwLock::default(),
            synced: watch::Sender::new(false),
        }
    }

    /// The Pod of the sandbox with this uid.
    pub(crate) fn get(&self, sandbox_uid: &str) -> Option<Arc<PodFacts>> {
        let by_owner = self.by_owner.read();
        by_owner.get(sandbox_uid).map(|held| held.facts.clone())
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Takes in a Pod as read or written. An older version than the known one is ignored.
    pub(crate) fn apply(&self, pod: &SlimPod) {
        let (Some(owner), Some(mut held)) = (owner(&pod.metadata), Held::read(pod)) else {
            return;
        };
        let mut by_owner = self.by_owner.write();
        let known = by_owner.get(&owner.uid);
        if known.is_some_and(|known| known.version > held.version) {
            return;
        }
        held.remember(known.map(|k| &*k.facts), self.clock);
        let changed = known.is_none_or(|known| known.facts != held.facts);
        let sandbox = held.sandbox.clone();
        by_owner.insert(owner.uid.clone(), held);
        drop(by_owner);
        if changed {
            self.queue.add(sandbox);
        }
    }

    /// Forgets a Pod that is gone.
    pub(crate) fn forget(&self, sandbox_uid: &str, pod_uid: &str) {
        let mut by_owner = self.by_owner.write();
        let gone = by_owner
            .get(sandbox_uid)
            .filter(|h| h.facts.uid == pod_uid)
            .map(|held| held.sandbox.clone());
        if let Some(sandbox) = gone {
            by_owner.remove(sandbox_uid);
            drop(by_owner);
            self.queue.add(sandbox);
        }
    }
}

impl Sink<SlimPod> for Pods {
    fn apply(&self, pod: SlimPod) {
        Self::apply(self, &pod);
    }

    fn remove(&self, _: &Key, meta: &ObjectMeta) {
        if let (Some(owner), Some(uid)) = (owner(meta), &meta.uid) {
            self.forget(&owner.uid, uid);
        }
    }

    fn retain(&self, seen: &HashSet<Key>) {
        let gone: Vec<_> = {
            let by_owner = self.by_owner.read();
            let gone = by_owner.iter().filter(|(_, h)| !seen.contains(&h.key));
            gone.map(|(owner, h)| (owner.clone(), h.facts.uid.clone()))
                .collect()
        };
        for (owner, pod) in gone {
            self.forget(&owner, &pod);
        }
        self.synced.send_replace(true);
    }
}

impl Held {
    fn read(pod: &SlimPod) -> Option<Self> {
        let facts = PodFacts::read(pod)?;
        let namespace = pod.namespace()?;
        Some(Self {
            key: Key {
                namespace: namespace.clone(),
                name: facts.name.clone(),
            },
            sandbox: Key {
                namespace,
                name: owner(&pod.metadata)?.name.clone(),
            },
            version: pod.resource_version().and_then(|v| v.parse().ok()),
            facts: Arc::new(facts),
        })
    }

    /// Dates by our own clock what was first seen now: trouble, because Pods do not say since when,
    /// and the end of a deletion's grace, because the API server's clock may be another one.
    fn remember(&mut self, known: Option<&PodFacts>, clock: Clock) {
        let facts = Arc::make_mut(&mut self.facts);
        if facts.deletion.is_some() {
            let seen = known
                .filter(|k| k.uid == facts.uid)
                .and_then(|k| k.deletion);
            facts.deletion = seen.or_else(|| clock.now().checked_add(facts.grace).ok());
        }
        let known = known.and_then(|k| k.trouble.as_ref());
        let Some(trouble) = &mut facts.trouble else {
            return;
        };
        let since = known
            .filter(|k| k.kind == trouble.kind)
            .and_then(|k| k.since);
        trouble.since = Some(since.unwrap_or_else(|| clock.now()));
    }
}

fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true) && o.kind == Sandbox::kind(&()))
}
