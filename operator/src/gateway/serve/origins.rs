//! How many connections come from one place, so that no client can take all there are. Only of use
//! where the gateway sees the addresses of clients and not that of a load balancer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;

/// A site, or a machine with privacy addresses, has as many IPv6 addresses as it likes with the same
/// first 64 bits.
const SITE: u128 = !0 << 64;

/// Connections by where they come from. There are never more entries than connections.
#[derive(Debug, Clone)]
pub(super) struct Origins {
    limit: Option<NonZeroUsize>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of its origin, if those are counted; until it is dropped.
#[derive(Debug)]
pub(super) struct Share(Option<(Origins, IpAddr)>);

impl Origins {
    /// Without a limit, nothing is counted.
    pub(super) fn new(limit: Option<NonZeroUsize>) -> Self {
        Self {
            limit,
            open: Arc::default(),
        }
    }

    /// Counts one more connection from `address`; `None` if it is one too many.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Share> {
        let Some(limit) = self.limit else {
            return Some(Share(None));
        };
        let origin = origin(address);
        let mut open = self.open.lock();
        let count = open.entry(origin).or_default();
        if *count >= limit.get() {
            return None;
        }
        *count += 1;
        Some(Share(Some((self.clone(), origin))))
    }
}

/// What counts as one place: an address, or an IPv6 network of 64 bits.
pub(in crate::gateway) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & SITE).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((origins, origin)) = &self.0 else {
            return;
        };
        let mut open = origins.open.lock();
        let count = open.get(origin).copied().unwrap_or_default();
        if count > 1 {
            open.insert(*origin, count - 1);
        } else {
            open.remove(origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(origins: &Origins, address: &str) -> Option<Share> {
        origins.admit(address.parse().unwrap())
    }

    #[test]
    fn each_origin_has_its_own_share() {
        let origins = Origins::new(NonZeroUsize::new(2));
        let first = admitted(&origins, "192.0.2.1");
        let second = admitted(&origins, "::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(admitted(&origins, "192.0.2.1").is_none());
        assert!(admitted(&origins, "192.0.2.2").is_some());
        drop(second);
        let third = admitted(&origins, "192.0.2.1");
        assert!(third.is_some());
        let site = ["2001:db8::1", "2001:db8::ffff:0:0:2"].map(|a| admitted(&origins, a));
        assert!(site.iter().all(Option::is_some));
        assert!(admitted(&origins, "2001:db8::3").is_none());
        assert!(admitted(&origins, "2001:db8:0:1::3").is_some());
        drop((first, third, site));
        assert!(origins.open.lock().is_empty());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let origins = Origins::new(None);
        let shares: Vec<_> = (0..9).map(|_| admitted(&origins, "192.0.2.1")).collect();
        assert!(shares.iter().all(Option::is_some));
        assert!(origins.open.lock().is_empty());
    }
}
