//! Pod network. As root, each Pod has a network namespace. Without root, it shares the host's
//! network and gets a loopback address, which its servers are asked to bind to.

mod firewall;
mod ip_forward;
mod ipam;
mod namespaces;
mod policies;
mod resolver;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Pod;

use self::ipam::{AddressLease, AddressPool};
use self::namespaces::Namespaces;
pub(crate) use self::policies::PolicyFeed;
use self::policies::{NetworkPolicies, PolicyMember};
use super::launcher::Launcher;
use super::paths::Paths;

/// Addresses of Pods with a namespace. Each node takes a part.
const POD_RANGE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 231, 0, 0), 16);

/// Addresses of Pods of nodes without root, beyond commonly used ones.
const LOOPBACK_RANGE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 128, 0, 0), 9);

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("no free part of {} for this node's Pods", POD_RANGE)]
    RangeTaken,
    #[error("all addresses of this node are in use")]
    Exhausted,
    #[error("Pod network: {0}")]
    Io(#[from] std::io::Error),
}

#[derive(Debug)]
pub(crate) struct Network {
    addresses: Arc<AddressPool>,
    namespaces: Option<Namespaces>,
    pub policies: Arc<NetworkPolicies>,
}

/// Connection of a Pod; removed when it is dropped and no process of the Pod is left.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Dropped first: the address is free after it.
    _policies: PolicyMember,
    pub lease: AddressLease,
    pub namespace: Option<Arc<OwnedFd>>,
}

impl Network {
    /// Sets up the network, after removing that of an earlier run. `allow_lan` lets Pods connect to
    /// private networks beyond this host.
    pub(crate) async fn start(
        is_root: bool,
        allow_lan: bool,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<(Self, PolicyFeed), NetworkError> {
        let namespaces = if is_root {
            Some(Namespaces::start(allow_lan, paths, launcher).await?)
        } else {
            None
        };
        let number = paths.hash % ipam::parts(LOOPBACK_RANGE);
        let shared = || ipam::part(LOOPBACK_RANGE, number);
        let range = namespaces.as_ref().map_or_else(shared, |own| own.part);
        let table = namespaces.as_ref().map(Namespaces::policy_table);
        let table = table.map(|table| (launcher.clone(), table));
        let (policies, feed) = NetworkPolicies::new(table);
        let network = Self {
            addresses: AddressPool::new(range),
            namespaces,
            policies,
        };
        Ok((network, feed))
    }

    /// Connects a Pod, at `preferred` if that address is free.
    pub(crate) async fn attach(
        &self,
        pod: &Pod,
        preferred: Option<Ipv4Addr>,
    ) -> Result<Attachment, NetworkError> {
        let lease = self.addresses.take(preferred);
        let lease = lease.ok_or(NetworkError::Exhausted)?;
        let member = self.policies.admit(pod, lease.address).await?;
        let namespace = match &self.namespaces {
            Some(namespaces) => Some(Arc::new(namespaces.connect(lease.address).await?)),
            None => None,
        };
        Ok(Attachment {
            _policies: member,
            lease,
            namespace,
        })
    }

    /// True if Pods share the host's network.
    pub(crate) fn is_shared(&self) -> bool {
        self.namespaces.is_none()
    }

    /// The host's address as Pods see it.
    pub(crate) fn host_ip(&self) -> IpAddr {
        let gateway = self.namespaces.as_ref().map(Namespaces::gateway);
        gateway.unwrap_or(Ipv4Addr::LOCALHOST).into()
    }

    /// Content of `/etc/resolv.conf` in Pods.
    pub(crate) fn resolv_conf(&self) -> String {
        resolver::resolv_conf(self.is_shared())
    }

    /// Removes the network.
    pub(crate) async fn stop(&self) {
        if let Some(namespaces) = &self.namespaces {
            namespaces.stop().await;
        }
    }
}
