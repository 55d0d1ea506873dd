//! Watches of the node. Objects that cannot be decoded are skipped; both watches recover from
//! errors.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource};
use operator::kubernetes::error_text;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::network::PolicyFeed;
use super::paths::remove_tree;
use super::pod_worker::{self, WatchedPod};
use super::{NODE_NAME, Node};

/// Handles claims until `shutdown`.
pub(crate) async fn claims(node: Arc<Node>, shutdown: CancellationToken) {
    let mut events = std::pin::pin!(events::<PersistentVolumeClaim>(&node.client));
    let mut listed = Vec::new();
    while let Some(event) = shutdown.run_until_cancelled(events.next()).await.flatten() {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(claim) => {
                node.claims.applied(&node.client, &claim).await;
                listed.push(claim);
            }
            Event::InitDone => node.claims.retain(&std::mem::take(&mut listed)),
            Event::Apply(claim) => node.claims.applied(&node.client, &claim).await,
            Event::Delete(claim) => node.claims.deleted(&claim),
        }
    }
}

/// Handles Pods until `shutdown`, and then waits for them to end.
pub(crate) async fn pods(node: Arc<Node>, shutdown: CancellationToken) {
    let mut events = std::pin::pin!(events::<Pod>(&node.client));
    let mut pods = Pods {
        node,
        running: BTreeMap::new(),
        seen: Vec::new(),
        tasks: TaskTracker::new(),
        shutdown,
    };
    let shutdown = pods.shutdown.clone();
    while let Some(event) = shutdown.run_until_cancelled(events.next()).await.flatten() {
        pods.handle(event);
    }
    pods.tasks.close();
    pods.tasks.wait().await;
}

/// Follows network policies until `shutdown`.
pub(crate) async fn policies(node: Arc<Node>, feed: PolicyFeed, shutdown: CancellationToken) {
    let (namespaces, policies) = (events(&node.client), events(&node.client));
    // On the heap: the future would exceed 16 KiB.
    let following = Box::pin(node.network.policies.run(feed, namespaces, policies));
    shutdown.run_until_cancelled(following).await;
}

/// Decoded objects of all namespaces. Errors are logged; the watch restarts itself.
fn events<K>(client: &Client) -> impl Stream<Item = Event<K>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api = Api::<DeserializeGuard<K>>::all(client.clone());
    let events = watcher(api, Config::default()).default_backoff();
    events.filter_map(async |event| match event {
        Ok(Event::Init) => Some(Event::Init),
        Ok(Event::InitDone) => Some(Event::InitDone),
        Ok(Event::InitApply(object)) => decoded(object).map(Event::InitApply),
        Ok(Event::Apply(object)) => decoded(object).map(Event::Apply),
        Ok(Event::Delete(object)) => decoded(object).map(Event::Delete),
        Err(error) => {
            let error = error_text::watch_error_text(&error);
            tracing::warn!(error, "watch interrupted");
            None
        }
    })
}

fn decoded<K>(object: DeserializeGuard<K>) -> Option<K> {
    let logged = object.0.inspect_err(|error| {
        tracing::warn!(object = error.metadata.name, %error, "malformed object skipped");
    });
    logged.ok()
}

/// Pods of this node by uid.
struct Pods {
    node: Arc<Node>,
    running: BTreeMap<String, watch::Sender<WatchedPod>>,
    /// Uids of the list being read.
    seen: Vec<String>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Pods {
    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(pod) => {
                self.seen.extend(pod.metadata.uid.clone());
                self.apply(pod);
            }
            Event::InitDone => self.retain_seen(),
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.delete(pod),
        }
    }

    fn apply(&mut self, mut pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else {
            return;
        };
        pod.metadata.managed_fields = None;
        self.node.network.policies.relabel(&pod);
        let seen = WatchedPod {
            pod: Arc::new(pod),
            is_deleted: false,
        };
        if let Some(known) = self.running.get(&uid) {
            known.send_replace(seen);
        } else if is_ours(&seen.pod) {
            let (sender, receiver) = watch::channel(seen);
            let worker = pod_worker::run(Arc::clone(&self.node), receiver, self.shutdown.clone());
            self.tasks.spawn(worker);
            self.running.insert(uid, sender);
        }
    }

    fn delete(&mut self, pod: Pod) {
        let uid = pod.metadata.uid.as_ref();
        if let Some(known) = uid.and_then(|uid| self.running.remove(uid)) {
            known.send_replace(WatchedPod {
                pod: Arc::new(pod),
                is_deleted: true,
            });
        }
    }

    /// After a list: ends deleted Pods and removes files of an earlier run.
    fn retain_seen(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.running.retain(|uid, known| {
            let alive = seen.contains(uid);
            if !alive {
                known.send_modify(|observed| observed.is_deleted = true);
            }
            alive
        });
        let directories = [self.node.paths.pods(), self.node.paths.memory()];
        let entries = directories.iter().flat_map(fs::read_dir).flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !seen.iter().any(|uid| name == uid.as_str()) {
                let remove = move || remove_tree(&entry.path());
                self.tasks.spawn_blocking(remove);
            }
        }
    }
}

/// True for Pods of this node and for unscheduled ones: there is no other node.
fn is_ours(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.as_deref());
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
    match node.filter(|name| !name.is_empty()) {
        Some(node) => node == NODE_NAME,
        None => gates.is_none_or(Vec::is_empty),
    }
}
