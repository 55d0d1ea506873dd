//! One watch per kind, each with its own backoff. Objects that do not decode are skipped, and
//! managed fields are dropped.
//!
//! Watches that share a backoff, as in kube's `Controller`, all stop for minutes after a short
//! outage, and one malformed object stops the whole list.

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
use super::{error_text, middleware};
use crate::diagnostics::Diagnostics;
use crate::index::{Index, Key};

const PAGE_SIZE: u32 = 100;

/// Receiver of the objects of a watch, usually an index.
pub trait WatchSink<K>: Send + Sync + 'static {
    /// Called before the first object of a complete list.
    fn begin_list(&self) {}
    /// Receives an object that was added or changed.
    fn apply(&self, object: K);
    fn remove(&self, key: &Key, meta: &ObjectMeta);
    /// Called after a complete list: all other objects are gone.
    fn retain(&self, seen: &HashSet<Key>);
}

/// API of a kind in one namespace, or in all.
pub fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Watches until `shutdown`. Errors are retried without end: a resource may be installed later.
pub async fn run<K>(
    api: Api<DeserializeGuard<K>>,
    labels: Option<String>,
    sink: Arc<dyn WatchSink<K>>,
    vitals: Arc<Diagnostics>,
    shutdown: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let resource = middleware::known_resource(&K::plural(&()));
    vitals.health.add_watch(resource, full_name::<K>());
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
    if let Some(labels) = labels {
        config = config.labels(&labels);
    }
    let events = watcher(api, config)
        .modify(|guard| guard.meta_mut().managed_fields = None)
        .backoff(backoff::watch_backoff())
        .inspect_err(|error| {
            vitals.health.watch_failed(resource, error.into());
            let error = error_text::watch_error_text(error);
            tracing::warn!(kind = %K::kind(&()), error, "watch failed; retrying");
        })
        .filter_map(|event| std::future::ready(event.ok()))
        .take_until(shutdown.cancelled_owned());
    let mut events = std::pin::pin!(events);
    // Keys of the list in progress.
    let mut seen = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => {
                seen.clear();
                sink.begin_list();
            }
            Event::InitApply(guard) => {
                // An object that no longer decodes still exists: its last known state stays.
                seen.extend(key_of(guard.meta()));
                apply(&*sink, guard);
            }
            Event::InitDone => {
                sink.retain(&std::mem::take(&mut seen));
                vitals.health.watch_listed(resource);
            }
            Event::Apply(guard) => apply(&*sink, guard),
            Event::Delete(guard) => {
                if let Some(key) = key_of(guard.meta()) {
                    sink.remove(&key, guard.meta());
                }
            }
        }
    }
}

fn apply<K: Resource<DynamicType = ()> + 'static>(
    sink: &dyn WatchSink<K>,
    guard: DeserializeGuard<K>,
) {
    match guard.0 {
        Ok(object) => sink.apply(object),
        Err(invalid) => tracing::warn!(
            kind = %K::kind(&()),
            namespace = invalid.metadata.namespace,
            name = invalid.metadata.name,
            error = invalid.error,
            "ignored a malformed object",
        ),
    }
}

/// Name of the resource with its group, `sandboxes.openhands.dev`.
fn full_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() {
        plural.into_owned()
    } else {
        format!("{plural}.{group}")
    }
}

fn key_of(meta: &ObjectMeta) -> Option<Key> {
    Some(Key {
        namespace: meta.namespace.clone()?,
        name: meta.name.clone()?,
    })
}

impl WatchSink<Sandbox> for Index {
    fn begin_list(&self) {
        Self::begin_list(self);
    }

    fn apply(&self, sandbox: Sandbox) {
        self.deliver(&sandbox);
    }

    fn remove(&self, key: &Key, meta: &ObjectMeta) {
        let version = meta.resource_version.as_deref();
        let version = version.and_then(|version| version.parse().ok());
        if let Some(uid) = &meta.uid {
            self.deliver_deletion(key, uid, version);
        }
    }

    fn retain(&self, seen: &HashSet<Key>) {
        Self::retain(self, seen);
    }
}
