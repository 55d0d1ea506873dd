//! Limits the connections of one client address, so that no client takes all of them. Only useful
//! where the gateway sees the addresses of clients and not that of a load balancer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;

use crate::client_address::is_trusted;

/// Network part of an IPv6 address: a site uses any number of addresses within its /64.
const IPV6_SITE_MASK: u128 = !0 << 64;

/// Open connections by client network. There are never more entries than connections.
#[derive(Debug, Clone)]
pub(super) struct AddressLimiter {
    limit: Option<NonZeroUsize>,
    /// Networks that are exempt.
    trusted: Arc<[IpNet]>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One counted connection, until it is dropped.
#[derive(Debug)]
pub(super) struct AddressPermit(Option<(AddressLimiter, IpAddr)>);

impl AddressLimiter {
    /// Creates a limiter; without a limit nothing is counted, nor are connections from `trusted`.
    pub(super) fn new(limit: Option<NonZeroUsize>, trusted: Arc<[IpNet]>) -> Self {
        Self {
            limit,
            trusted,
            open: Arc::default(),
        }
    }

    /// Counts one more connection from `address`; `None` above the limit.
    pub(super) fn admit(&self, address: IpAddr) -> Option<AddressPermit> {
        let limit = self
            .limit
            .filter(|_| !is_trusted(address.to_canonical(), &self.trusted));
        let Some(limit) = limit else {
            return Some(AddressPermit(None));
        };
        let network = client_network(address);
        let mut open = self.open.lock();
        let count = open.entry(network).or_default();
        if *count >= limit.get() {
            return None;
        }
        *count += 1;
        Some(AddressPermit(Some((self.clone(), network))))
    }
}

/// Client network of an address: the IPv4 address itself, or the IPv6 /64.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_SITE_MASK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let Some((limiter, network)) = &self.0 else {
            return;
        };
        let mut open = limiter.open.lock();
        let count = open.get(network).copied().unwrap_or_default();
        if count > 1 {
            open.insert(*network, count - 1);
        } else {
            open.remove(network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limiter: &AddressLimiter, address: &str) -> Option<AddressPermit> {
        limiter.admit(address.parse().unwrap())
    }

    #[test]
    fn limits_connections_per_client_network() {
        let trusted = ["10.0.0.0/8".parse().unwrap()].into();
        let limiter = AddressLimiter::new(NonZeroUsize::new(2), trusted);
        let proxy: Vec<_> = (0..9).map(|_| admitted(&limiter, "10.0.0.1")).collect();
        assert!(proxy.iter().all(Option::is_some));
        let first = admitted(&limiter, "192.0.2.1");
        let second = admitted(&limiter, "::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(admitted(&limiter, "192.0.2.1").is_none());
        assert!(admitted(&limiter, "192.0.2.2").is_some());
        drop(second);
        let third = admitted(&limiter, "192.0.2.1");
        assert!(third.is_some());
        let site = ["2001:db8::1", "2001:db8::ffff:0:0:2"].map(|a| admitted(&limiter, a));
        assert!(site.iter().all(Option::is_some));
        assert!(admitted(&limiter, "2001:db8::3").is_none());
        assert!(admitted(&limiter, "2001:db8:0:1::3").is_some());
        drop((first, third, site));
        assert!(limiter.open.lock().is_empty());
    }

    #[test]
    fn counts_nothing_without_a_limit() {
        let limiter = AddressLimiter::new(None, Arc::new([]));
        let permits: Vec<_> = (0..9).map(|_| admitted(&limiter, "192.0.2.1")).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(limiter.open.lock().is_empty());
    }
}
