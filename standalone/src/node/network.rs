//! Addresses of Pods. As root each Pod has a network namespace; without root it shares the host's
//! network and has a loopback address of its own, which its servers are asked to bind to.

mod address;
mod firewall;
mod forwarding;
mod namespaces;
mod resolver;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::address::{Addresses, Lease};
pub use self::address::{BadCidr, Cidr};
use self::namespaces::Namespaces;
use super::launcher::Launcher;
use super::paths::Paths;

/// How Pods are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// One namespace per Pod, addresses from a part of this range. Needs root.
    Namespaces(Cidr),
    /// The host's network, one address in 127.0.0.0/8 per Pod.
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

/// Why Pods cannot be connected.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("no free part of {0} for this node's Pods")]
    RangeTaken(Cidr),
    #[error("all addresses of this node are in use")]
    Exhausted,
    #[error("Pod network: {0}")]
    Io(#[from] std::io::Error),
}

/// The node's end of the network.
#[derive(Debug)]
pub(crate) struct Network {
    addresses: Arc<Addresses>,
    namespaces: Option<Namespaces>,
}

/// A Pod's connection; gone when dropped and no process of the Pod is left.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub lease: Lease,
    pub namespace: Option<Arc<OwnedFd>>,
}

impl Attachment {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.lease.address()
    }
}

impl Network {
    /// Sets up the node's end, after removing that of an earlier run.
    pub(crate) async fn start(
        wish: PodNetwork,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<Self, NetworkError> {
        match wish {
            PodNetwork::Loopback => Ok(Self {
                addresses: Addresses::new(address::loopback_part(&paths.tag)),
                namespaces: None,
            }),
            PodNetwork::Namespaces(range) => {
                let namespaces = Namespaces::start(range, paths, launcher).await?;
                Ok(Self {
                    addresses: Addresses::new(namespaces.part()),
                    namespaces: Some(namespaces),
                })
            }
        }
    }

    /// Connects a Pod, at `preferred` if that is free.
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

    /// Whether Pods have the host's network.
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

    /// The `/etc/resolv.conf` of Pods.
    pub(crate) fn resolv_conf(&self) -> String {
        resolver::resolv_conf(self.is_shared())
    }

    /// Removes the node's end.
    pub(crate) async fn stop(&self) {
        if let Some(namespaces) = &self.namespaces {
            namespaces.stop().await;
        }
    }
}
