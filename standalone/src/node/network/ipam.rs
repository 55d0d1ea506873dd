//! IPv4 ranges and address allocation. Addresses are assigned in order and returned on drop, so
//! that each is reused as late as possible.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;

/// An IPv4 range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    prefix: u8,
}

/// Invalid IPv4 range, or one too small for Pods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IPv4 range between /8 and /24")]
pub struct BadCidr(String);

impl Cidr {
    /// `10.231.0.0/16`.
    pub const DEFAULT: Self = Self {
        base: 0x0ae7_0000,
        prefix: 16,
    };

    pub(super) const fn new(base: Ipv4Addr, prefix: u8) -> Self {
        Self {
            base: base.to_bits() & mask(prefix),
            prefix,
        }
    }

    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.base
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        (self.base ^ other.base) & mask(prefix) == 0
    }

    pub(super) fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + offset)
    }

    fn size(self) -> u32 {
        !mask(self.prefix) + 1
    }

    /// Number of parts with `prefix` in the range.
    pub(super) fn parts(self, prefix: u8) -> u32 {
        1 << prefix.saturating_sub(self.prefix)
    }

    /// Part `number` of the range, with `prefix`.
    pub(super) fn part(self, number: u32, prefix: u8) -> Self {
        let prefix = prefix.max(self.prefix);
        Self {
            base: self.base + (number << (32 - prefix)),
            prefix,
        }
    }
}

const fn mask(prefix: u8) -> u32 {
    if prefix == 0 {
        0
    } else {
        u32::MAX << (32 - prefix)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let prefix = prefix
                .parse()
                .ok()
                .filter(|prefix| (8..=24).contains(prefix))?;
            Some(Self::new(address.parse().ok()?, prefix))
        };
        parse().ok_or_else(|| BadCidr(text.to_owned()))
    }
}

/// Number derived from the node's tag, which spreads nodes over ranges.
pub(super) fn spread(tag: &str) -> u32 {
    u32::from_str_radix(tag, 16).unwrap_or(0)
}

/// Part of 127.0.0.0/8 for a node without root: a /22 beyond commonly used addresses.
pub(super) fn loopback_part(tag: &str) -> Cidr {
    let range = Cidr::new(Ipv4Addr::new(127, 128, 0, 0), 9);
    range.part(spread(tag) % range.parts(22), 22)
}

/// Address pool of one node.
#[derive(Debug)]
pub(super) struct AddressPool {
    range: Cidr,
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
    offset: u32,
    owner: Arc<AddressPool>,
}

impl AddressPool {
    pub(super) fn new(range: Cidr) -> Arc<Self> {
        let state = PoolState {
            used: BTreeSet::new(),
            next: FIRST,
        };
        Arc::new(Self {
            range,
            state: Mutex::new(state),
        })
    }

    /// Takes `preferred` if it is in range and free, else the next free address.
    pub(super) fn take(self: &Arc<Self>, preferred: Option<Ipv4Addr>) -> Option<AddressLease> {
        let mut state = self.state.lock();
        let end = self.range.size() - 1;
        let preferred = preferred
            .filter(|address| self.range.contains(*address))
            .map(|address| address.to_bits() - self.range.base)
            .filter(|offset| (FIRST..end).contains(offset) && !state.used.contains(offset));
        let offset = preferred.or_else(|| {
            let order = (state.next..end).chain(FIRST..state.next);
            order
                .into_iter()
                .find(|offset| !state.used.contains(offset))
        })?;
        if preferred.is_none() {
            state.next = offset + 1;
        }
        state.used.insert(offset);
        Some(AddressLease {
            offset,
            owner: Arc::clone(self),
        })
    }
}

/// After the network's own address and the gateway.
const FIRST: u32 = 2;

impl AddressLease {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.owner.range.address(self.offset)
    }
}

impl Drop for AddressLease {
    fn drop(&mut self) {
        self.owner.state.lock().used.remove(&self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn cidr_parses_and_divides() {
        assert_eq!(Cidr::DEFAULT.to_string(), "10.231.0.0/16");
        assert_eq!(cidr("10.231.0.0/16"), Cidr::DEFAULT);
        assert_eq!(Cidr::DEFAULT.parts(22), 64);
        assert_eq!(Cidr::DEFAULT.part(63, 22).to_string(), "10.231.252.0/22");
        assert_eq!(cidr("10.1.2.0/24").parts(22), 1);
        assert_eq!(cidr("10.1.2.0/24").part(0, 22).to_string(), "10.1.2.0/24");
        assert!(Cidr::DEFAULT.overlaps(cidr("10.0.0.0/8")));
        assert!(!Cidr::DEFAULT.overlaps(cidr("10.232.0.0/16")));
        for bad in ["", "10.0.0.0", "10.0.0.0/30", "10.0.0/16", "x/16"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_unique_and_reused_late() {
        let addresses = AddressPool::new(cidr("10.0.0.0/24"));
        let first = addresses.take(None).unwrap();
        assert_eq!(first.address(), Ipv4Addr::new(10, 0, 0, 2));
        drop(first);
        let second = addresses.take(None).unwrap();
        assert_eq!(second.address(), Ipv4Addr::new(10, 0, 0, 3));
        let all: Vec<AddressLease> = std::iter::from_fn(|| addresses.take(None)).collect();
        assert_eq!(all.len(), 252);
        let unique: BTreeSet<_> = all.iter().map(AddressLease::address).collect();
        assert_eq!(unique.len(), 252);
        assert!(!unique.contains(&second.address()));
    }

    #[test]
    fn take_prefers_requested_address() {
        let addresses = AddressPool::new(cidr("10.0.0.0/24"));
        let wish = Some(Ipv4Addr::new(10, 0, 0, 77));
        let granted = addresses.take(wish).unwrap();
        assert_eq!(Some(granted.address()), wish);
        assert_ne!(Some(addresses.take(wish).unwrap().address()), wish);
        let foreign = Some(Ipv4Addr::new(10, 1, 0, 77));
        assert_ne!(Some(addresses.take(foreign).unwrap().address()), foreign);
        let gateway = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_ne!(Some(addresses.take(gateway).unwrap().address()), gateway);
    }

    #[test]
    fn loopback_part_is_in_loopback_range() {
        for tag in ["00000", "fffff", "12345"] {
            let part = loopback_part(tag);
            assert!(part.address(0).is_loopback() && part.address(1023).is_loopback());
            assert!(!part.contains(Ipv4Addr::LOCALHOST));
        }
    }
}
