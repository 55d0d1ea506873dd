//! One nftables table per node: Pods reach the world, but neither each other, nor this host, nor
//! its cloud's metadata service. Pure text; [`super::namespaces`] applies it.

use super::address::Cidr;

/// Interfaces of all standalone nodes on this machine begin so.
pub(super) const INTERFACES: &str = "sbx";

/// Name of the table of node `tag`, which has claimed part `part`.
pub(super) fn table(tag: &str, part: u32) -> String {
    format!("sandbox_{part}_{tag}")
}

/// Part and tag from a table's name.
pub(super) fn read_table(name: &str) -> Option<(u32, &str)> {
    let (part, tag) = name.strip_prefix("sandbox_")?.split_once('_')?;
    Some((part.parse().ok()?, tag))
}

/// The rules of node `tag`.
pub(super) fn rules(tag: &str, part: u32, range: Cidr) -> String {
    let table = table(tag, part);
    let own = format!("\"{INTERFACES}{tag}*\"");
    let pods = format!("\"{INTERFACES}*\"");
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
    oifname {own} ct state established,related accept
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert_eq!(read_table(&table("abcde", 7)), Some((7, "abcde")));
        assert_eq!(read_table("filter"), None);
        assert_eq!(read_table("sandbox_x_y"), None);
    }

    #[test]
    fn the_range_is_what_is_masqueraded() {
        let rules = rules("abcde", 7, Cidr::DEFAULT);
        assert!(rules.contains("ip saddr 10.231.0.0/16 oifname != \"sbx*\" masquerade"));
        assert!(rules.starts_with("table inet sandbox_7_abcde {"));
    }
}
