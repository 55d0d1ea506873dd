//! Name servers for Pods: the host's, except those that only the host can reach.

use std::fs;
use std::net::IpAddr;

/// Where systemd-resolved keeps the servers behind its loopback address.
const UPSTREAM: &str = "/run/systemd/resolve/resolv.conf";

/// What Docker falls back to.
const FALLBACK: &str = "nameserver 8.8.8.8\nnameserver 8.8.4.4\n";

/// The `/etc/resolv.conf` of Pods; `shared` if they have the host's network.
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
    fn loopback_servers_are_left_out() {
        let text = "search a\nnameserver 127.0.0.53\nnameserver 9.9.9.9\n";
        assert_eq!(reachable(text).unwrap(), "search a\nnameserver 9.9.9.9\n");
        assert_eq!(reachable("nameserver 127.0.0.53\n"), None);
        assert_eq!(reachable(""), None);
    }
}
