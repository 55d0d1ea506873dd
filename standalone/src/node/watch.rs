//! The two watches of the node. An object that cannot be decoded is skipped, and both recover
//! from interruptions by themselves.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use operator::kubernetes::words;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::lifecycle::{self, Observed};
use super::{Node, removal};

/// Follows the claims until `shutdown`.
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

/// Follows the Pods until `shutdown`, and then waits for theirs to end.
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

/// What can be decoded. Errors are logged: the stream itself starts anew.
fn events<K: Send + 'static>(
    stream: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>> + Send,
) -> impl Stream<Item = Event<K>> + Send {
    stream.filter_map(async |event| {
        let event = event
            .inspect_err(|error| {
                let error = words::of_watch(error);
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

/// The Pods of this node, by uid.
struct Pods {
    node: Arc<Node>,
    running: BTreeMap<String, watch::Sender<Observed>>,
    /// Those of the list that is being read.
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
        let seen = Observed {
            pod: Arc::new(pod),
            gone: false,
        };
        if let Some(known) = self.running.get(&uid) {
            known.send_replace(seen);
            return;
        }
        if self.is_ours(&seen.pod) {
            self.start(uid, seen);
        }
    }

    /// A Pod without a node is ours too: there is no other.
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

    fn start(&mut self, uid: String, seen: Observed) {
        let (sender, receiver) = watch::channel(seen);
        let life = lifecycle::run(Arc::clone(&self.node), receiver, self.shutdown.clone());
        self.tasks.spawn(life);
        self.running.insert(uid, sender);
    }

    fn delete(&mut self, pod: Pod) {
        let known = pod
            .metadata
            .uid
            .as_ref()
            .and_then(|uid| self.running.remove(uid));
        if let Some(known) = known {
            known.send_replace(Observed {
                pod: Arc::new(pod),
                gone: true,
            });
        }
    }

    /// After a list: ends what is gone, and removes what Pods of an earlier run left.
    fn retain_seen(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.running.retain(|uid, known| {
            let alive = seen.contains(uid);
            if !alive {
                known.send_modify(|observed| observed.gone = true);
            }
            alive
        });
        let places = [self.node.paths.pods(), self.node.paths.memory()];
        for entry in places.iter().flat_map(fs::read_dir).flatten().flatten() {
            let name = entry.file_name();
            if !name
                .to_str()
                .is_some_and(|uid| seen.iter().any(|known| known == uid))
            {
                self.tasks
                    .spawn_blocking(move || removal::remove(&entry.path()));
            }
        }
    }
}
