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
use crate::index::gone::Gone;
use crate::kubernetes::queue::Queue;
use crate::kubernetes::slim::SlimPod;
use crate::kubernetes::watch::Sink;
use crds::Sandbox;

/// Index of Pods.
#[derive(Debug)]
pub(crate) struct Pods {
    clock: Clock,
    queue: Arc<Queue<Key>>,
    tables: RwLock<Tables>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Tables {
    by_owner: HashMap<String, Held>,
    /// Pods that are gone: late news of one must not bring it back.
    gone: Gone,
    /// Sandboxes that had one of those.
    bereft: Gone,
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
            tables: RwLock::default(),
            synced: watch::Sender::new(false),
        }
    }

    /// The Pod of the sandbox with this uid.
    pub(crate) fn get(&self, sandbox_uid: &str) -> Option<Arc<PodFacts>> {
        let tables = self.tables.read();
        let held = tables.by_owner.get(sandbox_uid);
        held.map(|held| held.facts.clone())
    }

    /// Whether a Pod of this sandbox went away lately.
    pub(crate) fn has_lost(&self, sandbox_uid: &str) -> bool {
        self.tables.read().bereft.contains(sandbox_uid)
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Takes in a Pod as read or written. An older version than the known one is ignored, and so is
    /// one that is gone; whoever was about to wait for that one looks again.
    pub(crate) fn apply(&self, pod: &SlimPod) {
        let (Some(owner), Some(mut held)) = (owner(&pod.metadata), Held::read(pod)) else {
            return;
        };
        let mut tables = self.tables.write();
        if tables.gone.contains(&held.facts.uid) {
            drop(tables);
            return self.queue.add(held.sandbox);
        }
        let known = tables.by_owner.get(&owner.uid);
        if known.is_some_and(|known| known.version > held.version) {
            return;
        }
        held.remember(known.map(|k| &*k.facts), self.clock);
        let changed = known.is_none_or(|known| known.facts != held.facts);
        let sandbox = held.sandbox.clone();
        tables.by_owner.insert(owner.uid.clone(), held);
        drop(tables);
        if changed {
            self.queue.add(sandbox);
        }
    }

    /// Forgets a Pod that is gone for good.
    pub(crate) fn forget(&self, sandbox_uid: &str, pod_uid: &str) {
        let mut tables = self.tables.write();
        tables.gone.insert(pod_uid);
        tables.bereft.insert(sandbox_uid);
        drop(tables);
        self.drop_held(sandbox_uid, pod_uid);
    }

    fn drop_held(&self, sandbox_uid: &str, pod_uid: &str) {
        let mut tables = self.tables.write();
        let held = tables.by_owner.get(sandbox_uid);
        let gone = held
            .filter(|held| held.facts.uid == pod_uid)
            .map(|held| held.sandbox.clone());
        if let Some(sandbox) = gone {
            tables.by_owner.remove(sandbox_uid);
            drop(tables);
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
            let tables = self.tables.read();
            let all = tables.by_owner.iter();
            let gone = all.filter(|(_, h)| !seen.contains(&h.key));
            gone.map(|(owner, h)| (owner.clone(), h.facts.uid.clone()))
                .collect()
        };
        for (owner, pod) in gone {
            // Not for good: the list may be older than a write of ours.
            self.drop_held(&owner, &pod);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, version: u32) -> SlimPod {
        let owner = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "name": "a",
            "uid": "sandbox", "controller": true});
        let metadata = json!({"namespace": "ns", "name": "a", "uid": uid,
            "resourceVersion": version.to_string(), "ownerReferences": [owner]});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn pods() -> (Pods, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::default());
        queue.open();
        (Pods::new(Clock::wall(), queue.clone()), queue)
    }

    fn known(pods: &Pods) -> Option<String> {
        pods.get("sandbox").map(|pod| pod.uid.clone())
    }

    #[tokio::test]
    async fn late_news_of_a_pod_that_is_gone_brings_it_not_back() {
        let (pods, queue) = pods();
        pods.apply(&pod("first", 1));
        assert!(!pods.has_lost("sandbox"));
        Sink::remove(&pods, &queue.next().await.0, &pod("first", 2).metadata);
        assert!(pods.has_lost("sandbox"));
        pods.apply(&pod("first", 3));
        assert_eq!(known(&pods), None);
        pods.apply(&pod("second", 4));
        assert_eq!(known(&pods).as_deref(), Some("second"));
    }

    #[tokio::test]
    async fn the_answer_to_a_creation_may_come_after_the_news_of_the_end() {
        let (pods, queue) = pods();
        Sink::remove(&pods, &queue_key(), &pod("first", 2).metadata);
        assert_eq!(queue.depth(), 0);
        pods.apply(&pod("first", 1));
        assert_eq!((known(&pods), queue.depth()), (None, 1));
    }

    #[tokio::test]
    async fn what_a_list_does_not_mention_may_come_back() {
        let (pods, _queue) = pods();
        pods.apply(&pod("first", 1));
        Sink::retain(&pods, &HashSet::new());
        assert_eq!(known(&pods), None);
        pods.apply(&pod("first", 1));
        assert_eq!(known(&pods).as_deref(), Some("first"));
    }

    fn queue_key() -> Key {
        Key {
            namespace: "ns".into(),
            name: "a".into(),
        }
    }
}
