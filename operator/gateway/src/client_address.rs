//! Addresses of a client: of its connection, and behind trusted proxies the one that they report.
//! Logs, login limits and `X-Forwarded-For` use the latter.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Maximum of entries of `X-Forwarded-For` that are read.
const MAX_HOPS: usize = 16;

/// Network part of an IPv6 address: a site uses any number of addresses within its /64.
const IPV6_SITE_MASK: u128 = !0 << 64;

#[derive(Debug, Clone, Copy)]
pub struct ClientConnection {
    pub peer: SocketAddr,
    /// Address that the client connected to, if known.
    pub local: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) struct ClientAddress {
    pub(super) ip: IpAddr,
    /// `X-Forwarded-For` of the upstream request: the client, then the trusted proxies.
    pub(super) forwarded_for: String,
}

impl From<SocketAddr> for ClientConnection {
    fn from(peer: SocketAddr) -> Self {
        Self { peer, local: None }
    }
}

impl ClientAddress {
    /// Reads the client from `X-Forwarded-For` for as long as the entries come from trusted proxies.
    pub(super) fn of(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        let mut ip = peer.ip().to_canonical();
        let mut forwarded_for = ip.to_string();
        let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let mut hops = lines.flat_map(|line| line.rsplit(',')).take(MAX_HOPS);
        while is_trusted(ip, trusted) {
            let Some(hop) = hops.next().and_then(parse_hop) else {
                break;
            };
            ip = hop;
            forwarded_for = format!("{ip}, {forwarded_for}");
        }
        Self { ip, forwarded_for }
    }

    /// Value of `X-Forwarded-For`.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.forwarded_for).ok()
    }
}

/// True if a proxy at this address is trusted to report its clients.
pub(super) fn is_trusted(ip: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&ip))
}

/// Client network of an address: the IPv4 address itself, or the IPv6 /64.
pub(super) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_SITE_MASK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// An address, with or without a port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let ip = text.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    ip.map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_the_last_address_that_no_trusted_proxy_has() {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"].map(|net| net.parse().unwrap());
        for (peer, lines, expected) in [
            ("192.0.2.1", &["6.6.6.6"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1"], "192.0.2.1, 10.0.0.1"),
            (
                "::ffff:10.0.0.1",
                &["6.6.6.6, 192.0.2.1"],
                "192.0.2.1, 10.0.0.1",
            ),
            (
                "10.0.0.1",
                &["6.6.6.6,192.0.2.1:4711", "[2001:db8::1]:80"],
                "192.0.2.1, 2001:db8::1, 10.0.0.1",
            ),
            ("10.0.0.1", &["192.0.2.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2, 10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_static(line));
            }
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            let client = ClientAddress::of(peer, &headers, &trusted);
            assert_eq!(client.forwarded_for, expected);
            let first = expected.split(',').next().unwrap();
            assert_eq!(client.ip.to_string(), first);
        }
    }
    #[test]
    fn client_network_is_the_ipv4_address_or_the_ipv6_site() {
        for (address, network) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::"),
            ("2001:db8::ffff:0:0:2", "2001:db8::"),
            ("2001:db8:0:1::3", "2001:db8:0:1::"),
        ] {
            let found = client_network(address.parse().unwrap());
            assert_eq!(found.to_string(), network);
        }
    }
}
