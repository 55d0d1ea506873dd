//! Name servers of Pods: those of the host, except the ones that only the host can reach.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

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
    resolv_conf(false).lines().filter_map(server).collect()
}

fn server<T: FromStr>(line: &str) -> Option<T> {
    line.trim().strip_prefix("nameserver")?.trim().parse().ok()
}

/// The text without loopback servers, if any server is left.
fn reachable(text: &str) -> Option<String> {
    let is_loopback = |line: &&str| server(line).is_some_and(|ip: IpAddr| ip.is_loopback());
    let kept: Vec<&str> = text.lines().filter(|line| !is_loopback(line)).collect();
    let has_server = kept.iter().any(|line| server::<IpAddr>(line).is_some());
    has_server.then(|| kept.join("\n") + "\n")
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
