//! Name servers of Pods: those of the host, except the ones that only the host can reach.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

/// Upstream servers of systemd-resolved.
const UPSTREAM: &str = "/run/systemd/resolve/resolv.conf";

/// Fallback, as in Docker.
const FALLBACK: &str = "nameserver 8.8.8.8\nnameserver 8.8.4.4\n";

/// Content of `/etc/resolv.conf` in Pods; `shared` if they use the host's network.
pub(super) fn resolv_conf(shared: bool) -> String {
    let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    if shared {
        return host;
    }
    let upstream = fs::read_to_string(UPSTREAM).unwrap_or_default();
    reachable(&host)
        .or_else(|| reachable(&upstream))
        .unwrap_or_else(|| FALLBACK.to_owned())
}

/// IPv4 name servers of Pods.
pub(super) fn servers() -> Vec<Ipv4Addr> {
    let text = resolv_conf(false);
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .collect()
}

/// The text without loopback servers, if any server is left.
fn reachable(text: &str) -> Option<String> {
    let server = |line: &str| -> Option<IpAddr> {
        line.trim().strip_prefix("nameserver")?.trim().parse().ok()
    };
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| server(line).is_none_or(|address| !address.is_loopback()))
        .collect();
    let any = kept.iter().any(|line| server(line).is_some());
    any.then(|| kept.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolver_skips_loopback_servers() {
        let text = "search a\nnameserver 127.0.0.53\nnameserver 9.9.9.9\n";
        assert_eq!(reachable(text).unwrap(), "search a\nnameserver 9.9.9.9\n");
        assert_eq!(reachable("nameserver 127.0.0.53\n"), None);
        assert_eq!(reachable(""), None);
    }
}
