//! nftables rules of a node: Pods reach the internet, but no other Pod, not this host, no private
//! network (unless allowed) and not a cloud's metadata service.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Prefix of the interfaces of all standalone nodes.
pub(super) const INTERFACES: &str = "sbx";

const POLICIES: &str = "_policies";

/// Table name of node `tag` with part `part`.
pub(super) fn table(tag: &str, part: u32) -> String {
    format!("sandbox_{part}_{tag}")
}

/// Table name of the network policies of a node.
pub(super) fn policy_table(tag: &str, part: u32) -> String {
    table(tag, part) + POLICIES
}

/// Part and tag in the name of either table.
pub(super) fn read_table(name: &str) -> Option<(u32, &str)> {
    let name = name.strip_suffix(POLICIES).unwrap_or(name);
    let (part, tag) = name.strip_prefix("sandbox_")?.split_once('_')?;
    Some((part.parse().ok()?, tag))
}

/// Networks without public addresses.
const PRIVATE: &str = "10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16";

/// Rules of node `tag`. `servers` are the name servers that Pods reach although private networks
/// are closed; `None` leaves private networks open.
pub(super) fn rules(tag: &str, part: u32, range: Ipv4Net, servers: Option<&[Ipv4Addr]>) -> String {
    let table = table(tag, part);
    let own = format!("\"{INTERFACES}{tag}*\"");
    let pods = format!("\"{INTERFACES}*\"");
    let lan = servers.map_or(String::new(), |servers| closed_lan(&own, servers));
    format!(
        "table inet {table} {{
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname {own} ct state established,related accept
    iifname {own} drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname {own} ct state established,related accept
    iifname {own} oifname {pods} drop
    iifname {own} ip daddr 169.254.0.0/16 drop
    iifname {own} meta nfproto ipv6 drop
    iifname {own} ip saddr != {range} drop
{lan}    oifname {own} ct state established,related accept
    oifname {own} drop
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {range} oifname != {pods} masquerade
  }}
}}
"
    )
}

fn closed_lan(own: &str, servers: &[Ipv4Addr]) -> String {
    let dns = |server: &Ipv4Addr| {
        format!(
            "    iifname {own} ip daddr {server} meta l4proto {{ tcp, udp }} th dport 53 accept\n"
        )
    };
    let dns: String = servers.iter().map(dns).collect();
    format!("{dns}    iifname {own} ip daddr {{ {PRIVATE} }} drop\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_name_round_trips() {
        for name in [table("abcde", 7), policy_table("abcde", 7)] {
            assert_eq!(read_table(&name), Some((7, "abcde")), "{name}");
        }
        assert_eq!(["filter", "sandbox_x_y"].map(read_table), [None, None]);
    }

    #[test]
    fn rules_masquerade_the_pod_range() {
        let rules = rules("abcde", 7, super::super::POD_RANGE, None);
        assert!(rules.contains("ip saddr 10.231.0.0/16 oifname != \"sbx*\" masquerade"));
        assert!(rules.starts_with("table inet sandbox_7_abcde {"));
    }
}
