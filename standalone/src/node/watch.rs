//! Watches of the node. Objects that cannot be decoded are skipped; both watches recover from
//! errors.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use operator::kubernetes::error_text;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pod_worker::{self, WatchedPod};
use super::{Node, remove_tree};

/// Handles claims until `shutdown`.
pub(crate) async fn claims(node: Arc<Node>, shutdown: CancellationToken) {
    let api = Api::<DeserializeGuard<PersistentVolumeClaim>>::all(node.client.clone());
    let mut events = std::pin::pin!(events(watcher(api, Config::default()).default_backoff()));
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
    let api = Api::<DeserializeGuard<Pod>>::all(node.client.clone());
    let mut events = std::pin::pin!(events(watcher(api, Config::default()).default_backoff()));
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

/// Yields decoded objects. Errors are logged; the stream restarts itself.
fn events<K: Send + 'static>(
    stream: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>> + Send,
) -> impl Stream<Item = Event<K>> + Send {
    stream.filter_map(async |event| {
        let event = event
            .inspect_err(|error| {
                let error = error_text::watch_error_text(error);
                tracing::warn!(error, "watch interrupted");
            })
            .ok()?;
        Some(match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::InitApply(object) => Event::InitApply(decoded(object)?),
            Event::Apply(object) => Event::Apply(decoded(object)?),
            Event::Delete(object) => Event::Delete(decoded(object)?),
        })
    })
}

fn decoded<K>(object: DeserializeGuard<K>) -> Option<K> {
    let name = |error: &kube::core::error_boundary::InvalidObject| error.metadata.name.clone();
    let logged = object.0.inspect_err(|error| {
        tracing::warn!(object = name(error), %error, "malformed object skipped");
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
        let seen = WatchedPod {
            pod: Arc::new(pod),
            is_deleted: false,
        };
        if let Some(known) = self.running.get(&uid) {
            known.send_replace(seen);
            return;
        }
        if self.is_ours(&seen.pod) {
            self.start(uid, seen);
        }
    }

    /// True for Pods of this node and for unscheduled ones: there is no other node.
    fn is_ours(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        let node = spec
            .and_then(|spec| spec.node_name.as_deref())
            .filter(|name| !name.is_empty());
        let gated = spec
            .and_then(|spec| spec.scheduling_gates.as_ref())
            .is_some_and(|gates| !gates.is_empty());
        node.map_or(!gated, |node| node == self.node.config.node_name)
    }

    fn start(&mut self, uid: String, seen: WatchedPod) {
        let (sender, receiver) = watch::channel(seen);
        let worker = pod_worker::run(Arc::clone(&self.node), receiver, self.shutdown.clone());
        self.tasks.spawn(worker);
        self.running.insert(uid, sender);
    }

    fn delete(&mut self, pod: Pod) {
        let known = pod
            .metadata
            .uid
            .as_ref()
            .and_then(|uid| self.running.remove(uid));
        if let Some(known) = known {
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
        for entry in directories
            .iter()
            .flat_map(fs::read_dir)
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            if !name
                .to_str()
                .is_some_and(|uid| seen.iter().any(|known| known == uid))
            {
                self.tasks
                    .spawn_blocking(move || remove_tree::remove(&entry.path()));
            }
        }
    }
}
