//! Network policies as packet filter rules. The test cluster does not enforce policies, so a test
//! loads these rules into the node's network namespace. They are made from the objects in the
//! cluster, for the Pods that exist at that moment.
//!
//! It understands what the chart's policies use: selectors, IPv4 ranges, TCP and UDP ports by number or
//! name. Anything else is an error, so that no test passes by a rule that is not there. An independent
//! analyzer of policies (`hack/python-analyzer`) agrees with these rules, as a test checks.

use std::fmt::Write as _;

use Direction::{In, Out};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{ParseExpressionError, Selector, SelectorExt as _};

/// The name of the nftables table.
pub const TABLE: &str = "network-policies";

#[derive(Debug, thiserror::Error)]
pub enum UnsupportedPolicy {
    #[error(transparent)]
    Selector(#[from] ParseExpressionError),
    #[error("policy types are missing")]
    Types,
    #[error("address range {0}")]
    Range(String),
    #[error("port {0:?}")]
    Port(Box<NetworkPolicyPort>),
}

type Result<T> = std::result::Result<T, UnsupportedPolicy>;

/// Objects of the cluster that policies select.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub struct PolicyInput {
    pub namespaces: Vec<Namespace>,
    pub pods: Vec<Pod>,
    pub policies: Vec<NetworkPolicy>,
}

/// Direction of packets, seen from a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl PolicyInput {
    /// The table for `nft -f`: it takes the place of an earlier one. What a policy does not allow is
    /// dropped; answers to what was allowed pass, and so does what the node itself sends, which the
    /// API wants for the kubelet.
    pub fn ruleset(&self) -> Result<String> {
        let (mut chains, mut jumps) = (String::new(), String::new());
        let mut to_node = String::new();
        for (number, (pod, own)) in self.addressed().enumerate() {
            for (direction, field) in [(Out, "saddr"), (In, "daddr")] {
                let Some(allowed) = self.allowed(pod, direction)? else {
                    continue;
                };
                let chain = format!("{direction:?}-{number}").to_lowercase();
                let _ = write!(chains, "\tchain {chain} {{\n{allowed}\t\tdrop\n\t}}\n");
                let jump = format!("\t\tip {field} {own} jump {chain}\n");
                jumps += &jump;
                if direction == Out {
                    to_node += &jump;
                }
            }
        }
        let known = "\t\tct state established,related accept\n";
        Ok(format!(
            "table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{chains}\
             \tchain forward {{\n\t\ttype filter hook forward priority 0\n{known}{jumps}\t}}\n\
             \tchain input {{\n\t\ttype filter hook input priority 0\n{known}{to_node}\t}}\n}}\n"
        ))
    }

    /// The Pods that have an address of their own.
    fn addressed(&self) -> impl Iterator<Item = (&Pod, &str)> {
        self.pods.iter().filter_map(|pod| {
            let host = pod.spec.as_ref().and_then(|s| s.host_network);
            let address = pod.status.as_ref()?.pod_ip.as_deref()?;
            (host != Some(true)).then_some((pod, address))
        })
    }

    /// The rules of the policies that select a Pod; `None` if none does, so that all is allowed.
    fn allowed(&self, pod: &Pod, direction: Direction) -> Result<Option<String>> {
        let mut selected = None;
        for policy in &self.policies {
            let Some(spec) = &policy.spec else { continue };
            let types = spec.policy_types.as_ref().ok_or(UnsupportedPolicy::Types)?;
            let kind = if direction == In { "Ingress" } else { "Egress" };
            if policy.namespace() == pod.namespace()
                && types.iter().any(|t| t == kind)
                && chosen(spec.pod_selector.as_ref(), pod)?
            {
                let lines: &mut String = selected.get_or_insert_default();
                let (ingress, egress) =
                    (spec.ingress.iter().flatten(), spec.egress.iter().flatten());
                let ingress = ingress.map(|r| (r.from.as_deref(), r.ports.as_deref()));
                let egress = egress.map(|r| (r.to.as_deref(), r.ports.as_deref()));
                let ingress = ingress.filter(|_| direction == In);
                for (peers, ports) in ingress.chain(egress.filter(|_| direction == Out)) {
                    let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
                    *lines += &self.rule(peers, ports, pod, direction)?;
                }
            }
        }
        Ok(selected)
    }

    /// A line for each peer and port that a rule of this Pod's namespace allows.
    fn rule(
        &self,
        peers: &[NetworkPolicyPeer],
        ports: &[NetworkPolicyPort],
        pod: &Pod,
        direction: Direction,
    ) -> Result<String> {
        let mut lines = String::new();
        for (addresses, peer) in self.peers(peers, pod, direction)? {
            // A named port is a port of the destination Pod.
            let called = if direction == In { Some(pod) } else { peer };
            if ports.is_empty() {
                let _ = writeln!(lines, "\t\t{addresses}return");
            }
            for port in ports {
                for port in port_matches(port, called)? {
                    let _ = writeln!(lines, "\t\t{addresses}{port}return");
                }
            }
        }
        Ok(lines)
    }

    /// A match per peer, with its Pod if it is one. No peers match all addresses.
    fn peers(
        &self,
        peers: &[NetworkPolicyPeer],
        pod: &Pod,
        direction: Direction,
    ) -> Result<Vec<(String, Option<&Pod>)>> {
        if peers.is_empty() {
            return Ok(vec![(String::new(), None)]);
        }
        let field = if direction == In { "saddr" } else { "daddr" };
        let mut found = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                found.extend(range(block, field)?.map(|m| (m, None)));
                continue;
            }
            for (other, address) in self.addressed() {
                if self.is_peer(peer, pod, other)? {
                    found.push((format!("ip {field} {address} "), Some(other)));
                }
            }
        }
        Ok(found)
    }

    fn is_peer(&self, peer: &NetworkPolicyPeer, pod: &Pod, other: &Pod) -> Result<bool> {
        let there = match &peer.namespace_selector {
            None => other.namespace() == pod.namespace(),
            Some(selector) => {
                let mut homes = self.namespaces.iter();
                let home = homes.find(|n| Some(n.name_any()) == other.namespace());
                home.map_or(Ok(false), |home| chosen(Some(selector), home))?
            }
        };
        Ok(there && chosen(peer.pod_selector.as_ref(), other)?)
    }
}

/// Returns whether a selector matches an object; an absent one matches all.
fn chosen(selector: Option<&LabelSelector>, of: &impl ResourceExt) -> Result<bool> {
    Ok(match selector {
        None => true,
        Some(selector) => Selector::try_from(selector.clone())?.matches(of.labels()),
    })
}

/// `None` for a range of IPv6: the table holds IPv4 only, and the node has no other.
fn range(block: &IPBlock, field: &str) -> Result<Option<String>> {
    if block.cidr.contains(':') {
        return Ok(None);
    }
    let mut text = format!("ip {field} {} ", cidr(&block.cidr)?);
    for except in block.except.iter().flatten() {
        let _ = write!(text, "ip {field} != {} ", cidr(except)?);
    }
    Ok(Some(text))
}

/// Returns an address range; other text must not get into the rules.
fn cidr(text: &str) -> Result<&str> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let is_range =
        address.parse::<std::net::Ipv4Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|b| b <= 32);
    is_range
        .then_some(text)
        .ok_or_else(|| UnsupportedPolicy::Range(text.to_owned()))
}

/// A match for a port; one with a name that the called Pod does not have matches nothing.
fn port_matches(port: &NetworkPolicyPort, called: Option<&Pod>) -> Result<Vec<String>> {
    let lower = |protocol: Option<&str>| protocol.unwrap_or("TCP").to_lowercase();
    let protocol = lower(port.protocol.as_deref());
    let numbers = match (&*protocol, &port.port, port.end_port, called) {
        ("tcp" | "udp", Some(IntOrString::Int(number)), None, _) => vec![*number],
        ("tcp" | "udp", Some(IntOrString::String(name)), None, Some(called)) => {
            let containers = called.spec.iter().flat_map(|s| &s.containers);
            let ports = containers.flat_map(|c| c.ports.iter().flatten());
            let named = ports.filter(|p| p.name.as_ref() == Some(name));
            let called = named.filter(|p| lower(p.protocol.as_deref()) == protocol);
            called.map(|p| p.container_port).collect()
        }
        _ => return Err(UnsupportedPolicy::Port(Box::new(port.clone()))),
    };
    let matches = numbers
        .into_iter()
        .map(|n| format!("{protocol} dport {n} "));
    Ok(matches.collect())
}
