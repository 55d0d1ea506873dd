//! Address allocation. Addresses are assigned in order and returned on drop, so that each is reused
//! as late as possible.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use ipnet::Ipv4Net;
use parking_lot::Mutex;

/// Prefix of a node's part of a range: 1021 Pods.
const PART: u8 = 22;

pub(super) fn parts(range: Ipv4Net) -> u32 {
    1 << PART.saturating_sub(range.prefix_len())
}

pub(super) fn part(range: Ipv4Net, number: u32) -> Ipv4Net {
    let first = range.network().to_bits() + (number << (32 - PART));
    Ipv4Net::new_assert(Ipv4Addr::from_bits(first), PART)
}

#[derive(Debug)]
pub(super) struct AddressPool {
    /// After the network's own address and the gateway.
    hosts: Range<u32>,
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    used: BTreeSet<u32>,
    next: u32,
}

/// Allocated address; returned on drop.
#[derive(Debug)]
pub(crate) struct AddressLease {
    pub address: Ipv4Addr,
    owner: Arc<AddressPool>,
}

impl AddressPool {
    pub(super) fn new(range: Ipv4Net) -> Arc<Self> {
        let hosts = range.network().to_bits() + 2..range.broadcast().to_bits();
        let state = PoolState {
            used: BTreeSet::new(),
            next: hosts.start,
        };
        Arc::new(Self {
            hosts,
            state: Mutex::new(state),
        })
    }

    /// Takes `preferred` if it is in range and free, else the next free address.
    pub(super) fn take(self: &Arc<Self>, preferred: Option<Ipv4Addr>) -> Option<AddressLease> {
        let mut state = self.state.lock();
        let preferred = preferred
            .map(Ipv4Addr::to_bits)
            .filter(|address| self.hosts.contains(address) && !state.used.contains(address));
        let address = preferred.or_else(|| {
            let mut order = (state.next..self.hosts.end).chain(self.hosts.start..state.next);
            order.find(|address| !state.used.contains(address))
        })?;
        if preferred.is_none() {
            state.next = address + 1;
        }
        state.used.insert(address);
        Some(AddressLease {
            address: Ipv4Addr::from_bits(address),
            owner: Arc::clone(self),
        })
    }
}

impl Drop for AddressLease {
    fn drop(&mut self) {
        self.owner.state.lock().used.remove(&self.address.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn range_divides_into_parts() {
        for (whole, number, count, expected) in [
            ("10.231.0.0/16", 63, 64, "10.231.252.0/22"),
            ("127.128.0.0/9", 8191, 8192, "127.255.252.0/22"),
        ] {
            assert_eq!(parts(range(whole)), count, "{whole}");
            assert_eq!(part(range(whole), number), range(expected), "{whole}");
        }
    }

    #[test]
    fn addresses_are_unique_and_reused_late() {
        let addresses = AddressPool::new(range("10.0.0.0/24"));
        let first = addresses.take(None).unwrap();
        assert_eq!(first.address, Ipv4Addr::new(10, 0, 0, 2));
        drop(first);
        let second = addresses.take(None).unwrap();
        assert_eq!(second.address, Ipv4Addr::new(10, 0, 0, 3));
        let all: Vec<AddressLease> = std::iter::from_fn(|| addresses.take(None)).collect();
        let unique: BTreeSet<_> = all.iter().map(|lease| lease.address).collect();
        assert_eq!((all.len(), unique.len()), (252, 252));
        assert!(!unique.contains(&second.address));
    }

    #[test]
    fn take_prefers_requested_address() {
        let addresses = AddressPool::new(range("10.0.0.0/24"));
        let take = |last: [u8; 2]| addresses.take(Some(Ipv4Addr::new(10, last[0], 0, last[1])));
        let granted = take([0, 77]).unwrap();
        assert_eq!(granted.address, Ipv4Addr::new(10, 0, 0, 77));
        for (case, [third, last]) in [("used", [0, 77]), ("foreign", [1, 77]), ("gateway", [0, 1])]
        {
            let other = take([third, last]).unwrap().address;
            assert_ne!(other, Ipv4Addr::new(10, third, 0, last), "{case}");
        }
    }
}
