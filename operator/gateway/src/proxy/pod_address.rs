//! Addresses that a Pod can have. `status.podIP` of a Sandbox is untrusted: a request must not
//! reach a metadata service, the gateway's own host or a multicast group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services outside the link-local ranges (AWS on IPv6, Azure, Alibaba Cloud).
const METADATA_SERVICES: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

/// Returns whether a Pod can have this address. Loopback is for Pods on the gateway's own host.
pub(super) fn is_pod_address(ip: IpAddr, allow_loopback: bool) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return allow_loopback;
    }
    let is_reserved = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_reserved && !ip.is_unspecified() && !ip.is_multicast() && !METADATA_SERVICES.contains(&ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_pod_networks_are_rejected() {
        let is_pod = |text: &str| is_pod_address(text.parse().unwrap(), false);
        for pod in [
            "10.244.0.7",
            "100.64.1.2",
            "192.168.3.4",
            "fd12::7",
            "2001:db8::1",
        ] {
            assert!(is_pod(pod), "{pod}");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.128.3.4",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!is_pod(other), "{other}");
        }
        assert!(is_pod_address("127.0.0.1".parse().unwrap(), true));
    }
}
