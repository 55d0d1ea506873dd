//! Pod network. As root, each Pod has a network namespace. Without root, it shares the host's
//! network and gets a loopback address, which its servers are asked to bind to.

mod firewall;
mod ip_forward;
mod ipam;
mod namespaces;
mod resolver;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::ipam::{AddressLease, AddressPool};
pub use self::ipam::{BadCidr, Cidr};
use self::namespaces::Namespaces;
use super::launcher::Launcher;
use super::paths::Paths;

/// Network type of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// One namespace per Pod, with addresses from a part of this range. Needs root.
    Namespaces(Cidr),
    /// The host's network, with one address in 127.0.0.0/8 per Pod.
    Loopback,
}

impl PodNetwork {
    /// Namespaces as root, loopback otherwise.
    pub fn detect() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Namespaces(Cidr::DEFAULT)
        } else {
            Self::Loopback
        }
    }
}

/// Private networks beyond this host, such as the one it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lan {
    Open,
    Closed,
}

/// A Pod cannot be connected.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("no free part of {0} for this node's Pods")]
    RangeTaken(Cidr),
    #[error("all addresses of this node are in use")]
    Exhausted,
    #[error("Pod network: {0}")]
    Io(#[from] std::io::Error),
}

/// Network of the node.
#[derive(Debug)]
pub(crate) struct Network {
    addresses: Arc<AddressPool>,
    namespaces: Option<Namespaces>,
}

/// Connection of a Pod; removed when it is dropped and no process of the Pod is left.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub lease: AddressLease,
    pub namespace: Option<Arc<OwnedFd>>,
}

impl Attachment {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.lease.address()
    }
}

impl Network {
    /// Sets up the network, after removing that of an earlier run.
    pub(crate) async fn start(
        requested: PodNetwork,
        lan: Lan,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<Self, NetworkError> {
        match requested {
            PodNetwork::Loopback => Ok(Self {
                addresses: AddressPool::new(ipam::loopback_part(&paths.tag)),
                namespaces: None,
            }),
            PodNetwork::Namespaces(range) => {
                let namespaces = Namespaces::start(range, lan, paths, launcher).await?;
                Ok(Self {
                    addresses: AddressPool::new(namespaces.part()),
                    namespaces: Some(namespaces),
                })
            }
        }
    }

    /// Connects a Pod, at `preferred` if that address is free.
    pub(crate) async fn attach(
        &self,
        preferred: Option<Ipv4Addr>,
    ) -> Result<Attachment, NetworkError> {
        let lease = self
            .addresses
            .take(preferred)
            .ok_or(NetworkError::Exhausted)?;
        let namespace = match &self.namespaces {
            Some(namespaces) => Some(Arc::new(namespaces.connect(lease.address()).await?)),
            None => None,
        };
        Ok(Attachment { lease, namespace })
    }

    /// True if Pods share the host's network.
    pub(crate) fn is_shared(&self) -> bool {
        self.namespaces.is_none()
    }

    /// The host's address as Pods see it.
    pub(crate) fn host_ip(&self) -> IpAddr {
        let namespaces = self.namespaces.as_ref();
        namespaces
            .map_or(Ipv4Addr::LOCALHOST, Namespaces::gateway)
            .into()
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
