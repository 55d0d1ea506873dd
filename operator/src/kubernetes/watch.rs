//! One watch per kind: each with its own backoff, guarded against objects that do not decode, and
//! trimmed of what nobody reads. What it sees goes to a [`Sink`], usually an index.
//!
//! Watches that share a backoff, as kube's `Controller` has them, go blind together for minutes
//! after a short outage; one malformed object would stop the list of all.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use crds::Sandbox;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::health::Trouble;
use super::{wire, words};
use crate::index::{Index, Key};
use crate::vitals::Vitals;

/// Objects per page of a list.
const PAGE_SIZE: u32 = 100;

/// Takes in what a watch sees.
pub trait Sink<K>: Send + Sync + 'static {
    /// An object as it now is.
    fn apply(&self, object: K);
    /// An object that is gone.
    fn remove(&self, key: &Key, meta: &ObjectMeta);
    /// A complete list has been applied; everything else is gone.
    fn retain(&self, seen: &HashSet<Key>);
}

/// All objects of a kind in one namespace, or in all.
pub fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Watches until `shutdown`. Errors are logged, told to the process's health, and retried for ever:
/// a resource that is not installed yet is waited for.
pub async fn run<K>(
    api: Api<DeserializeGuard<K>>,
    labels: Option<&str>,
    sink: Arc<dyn Sink<K>>,
    vitals: Arc<Vitals>,
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let resource = wire::resource(&K::plural(&()));
    vitals.health.begin(resource, full_name::<K>());
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    let events = watcher(api, config)
        .modify(|guard| guard.meta_mut().managed_fields = None)
        .backoff(backoff::of_watch())
        .inspect_err(|error| {
            vitals.health.failed(resource, Trouble::from(error));
            let error = words::of_watch(error);
            tracing::warn!(kind = %K::kind(&()), error, "watch failed; trying again");
        })
        .filter_map(|event| std::future::ready(event.ok()))
        .take_until(shutdown.cancelled_owned());
    let mut feed = Feed {
        sink,
        seen: HashSet::new(),
    };
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let complete = matches!(event, Event::InitDone);
        feed.take(event);
        if complete {
            vitals.health.listed(resource);
        }
    }
}

/// The resource's name with its group, `sandboxes.openhands.dev`.
fn full_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() {
        plural.into_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Feeds the index of Sandboxes until `shutdown`.
pub async fn sandboxes(
    client: Client,
    namespace: Option<String>,
    index: Arc<Index>,
    shutdown: CancellationToken,
) {
    let api = api(&client, namespace.as_deref());
    run::<Sandbox>(api, None, index, Arc::default(), shutdown).await;
}

/// Tells a sink what a stream of events means.
struct Feed<K: 'static> {
    sink: Arc<dyn Sink<K>>,
    /// Keys of the list that is under way.
    seen: HashSet<Key>,
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    fn take(&mut self, event: Event<DeserializeGuard<K>>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(guard) => {
                // An object that no longer decodes is not gone: what is known of it stays.
                self.seen.extend(key_of(guard.meta()));
                self.apply(guard);
            }
            Event::InitDone => self.sink.retain(&std::mem::take(&mut self.seen)),
            Event::Apply(guard) => self.apply(guard),
            Event::Delete(guard) => {
                if let Some(key) = key_of(guard.meta()) {
                    self.sink.remove(&key, guard.meta());
                }
            }
        }
    }

    fn apply(&self, guard: DeserializeGuard<K>) {
        match guard.0 {
            Ok(object) => self.sink.apply(object),
            Err(invalid) => tracing::warn!(
                kind = %K::kind(&()),
                namespace = invalid.metadata.namespace,
                name = invalid.metadata.name,
                error = invalid.error,
                "ignored a malformed object",
            ),
        }
    }
}

fn key_of(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: meta.name.clone()?,
    })
}

impl Sink<Sandbox> for Index {
    fn apply(&self, sandbox: Sandbox) {
        Self::apply(self, &sandbox);
    }

    fn remove(&self, key: &Key, meta: &ObjectMeta) {
        if let Some(uid) = &meta.uid {
            Self::remove(self, key, uid);
        }
    }

    fn retain(&self, seen: &HashSet<Key>) {
        Self::retain(self, seen);
    }
}
