//! Enforcement of network policies in a table of its own, beside that of the node: a packet has to
//! pass both, so that a policy never opens what the node closes. A Pod starts only once the policies
//! that select it are in force; later changes follow within moments.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSpec, PodStatus};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, Store, store};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::launcher::Launcher;
use super::namespaces::program;
use crate::network_policy::{PolicyInput, validate};

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Objects that policies are made from, and the rules that are in force.
#[derive(Debug)]
pub(crate) struct NetworkPolicies {
    namespaces: Store<Namespace>,
    policies: Store<NetworkPolicy>,
    /// Pods that are connected, by uid: what policies see of them.
    pods: Mutex<BTreeMap<String, Pod>>,
    changed: Notify,
    /// `None` if Pods share the network of the host, where nothing can be enforced.
    table: Option<(Launcher, String)>,
    /// Rules that the kernel has; empty if that is not known.
    applied: tokio::sync::Mutex<String>,
}

/// Writing ends of the stores.
#[derive(Debug)]
pub(crate) struct PolicyFeed {
    namespaces: Writer<Namespace>,
    policies: Writer<NetworkPolicy>,
}

/// Membership of a connected Pod.
#[derive(Debug)]
pub(crate) struct PolicyMember {
    owner: Arc<NetworkPolicies>,
    uid: String,
}

impl Drop for PolicyMember {
    fn drop(&mut self) {
        // Its address is in the rules until the next change; no other Pod has it before that.
        self.owner.pods.lock().remove(&self.uid);
    }
}

impl NetworkPolicies {
    pub(super) fn new(table: Option<(Launcher, String)>) -> (Arc<Self>, PolicyFeed) {
        let (namespaces, namespace_writer) = store();
        let (policies, policy_writer) = store();
        let feed = PolicyFeed {
            namespaces: namespace_writer,
            policies: policy_writer,
        };
        let empty = table
            .as_ref()
            .map(|(_, name)| PolicyInput::default().ruleset(name));
        let this = Self {
            namespaces,
            policies,
            pods: Mutex::default(),
            changed: Notify::new(),
            table,
            applied: tokio::sync::Mutex::new(empty.unwrap_or_default()),
        };
        (Arc::new(this), feed)
    }

    /// Adds a Pod. Its policies are in force when this returns.
    pub(super) async fn admit(
        self: &Arc<Self>,
        pod: &Pod,
        address: Ipv4Addr,
    ) -> io::Result<PolicyMember> {
        let gone = |error| io::Error::other(format!("network policies: {error}"));
        self.policies.wait_until_ready().await.map_err(gone)?;
        self.namespaces.wait_until_ready().await.map_err(gone)?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let member = PolicyMember {
            owner: Arc::clone(self),
            uid: uid.clone(),
        };
        self.pods.lock().insert(uid, selectable(pod, address));
        self.apply().await?;
        Ok(member)
    }

    /// Takes over the labels of a Pod, if it is connected.
    pub(crate) fn relabel(&self, pod: &Pod) {
        let mut pods = self.pods.lock();
        let known = pod.metadata.uid.as_ref().and_then(|uid| pods.get_mut(uid));
        if let Some(known) = known.filter(|known| known.metadata.labels != pod.metadata.labels) {
            known.metadata.labels.clone_from(&pod.metadata.labels);
            self.changed.notify_one();
        }
    }

    /// Follows the objects, and brings the rules up to date, until it is dropped.
    pub(crate) async fn run(
        &self,
        feed: PolicyFeed,
        namespaces: impl Stream<Item = Event<Namespace>>,
        policies: impl Stream<Item = Event<NetworkPolicy>>,
    ) {
        let policies = policies.inspect(|event| self.warn_about(event));
        let keep_applied = async {
            loop {
                self.changed.notified().await;
                while let Err(error) = self.apply().await {
                    tracing::error!(%error, "network policies are not up to date");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        };
        tokio::join!(
            self.follow(feed.namespaces, namespaces),
            self.follow(feed.policies, policies),
            keep_applied,
        );
    }

    async fn follow<K>(&self, mut writer: Writer<K>, events: impl Stream<Item = Event<K>>)
    where
        K: Lookup<DynamicType = ()> + Clone + 'static,
    {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            writer.apply_watcher_event(&event);
            self.changed.notify_one();
        }
    }

    fn warn_about(&self, event: &Event<NetworkPolicy>) {
        let (Event::Apply(policy) | Event::InitApply(policy)) = event else {
            return;
        };
        let name = policy.name_any();
        if self.table.is_none() {
            tracing::warn!(
                name,
                "a network policy is not enforced: the node is not root"
            );
        } else if let Err(error) = validate(policy) {
            tracing::warn!(name, %error, "a part of a network policy cannot be read: it allows nothing");
        }
    }

    /// Loads the rules if they have changed.
    async fn apply(&self) -> io::Result<()> {
        let Some((launcher, table)) = &self.table else {
            return Ok(());
        };
        let mut applied = self.applied.lock().await;
        let rules = self.input().ruleset(table);
        if *applied != rules {
            // A caller that is cancelled does not know which rules the kernel has.
            applied.clear();
            let load = program("nft", &["-f", "-"]);
            launcher.command(load, rules.clone()).await?;
            *applied = rules;
        }
        Ok(())
    }

    fn input(&self) -> PolicyInput {
        let namespaces = self.namespaces.state().into_iter();
        let policies = self.policies.state().into_iter();
        PolicyInput {
            namespaces: namespaces.map(Arc::unwrap_or_clone).collect(),
            policies: policies.map(Arc::unwrap_or_clone).collect(),
            pods: self.pods.lock().values().cloned().collect(),
        }
    }
}

/// The fields of a Pod that policies see.
fn selectable(pod: &Pod, address: Ipv4Addr) -> Pod {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let containers = containers.map(|container| Container {
        name: container.name.clone(),
        ports: container.ports.clone(),
        ..Container::default()
    });
    Pod {
        metadata: ObjectMeta {
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: containers.collect(),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            pod_ip: Some(address.to_string()),
            ..PodStatus::default()
        }),
    }
}
