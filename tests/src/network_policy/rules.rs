//! The rules of one policy for one Pod: a line for each peer and port that it allows.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Direction, PolicyInput, UnsupportedPolicy, chosen, namespaces};

/// Returns whether a policy applies to this direction.
pub(super) fn governs(spec: &NetworkPolicySpec, direction: Direction) -> bool {
    let named = |name: &str| spec.policy_types.iter().flatten().any(|t| t == name);
    match (direction, &spec.policy_types) {
        (Direction::In, Some(_)) => named("Ingress"),
        (Direction::Out, Some(_)) => named("Egress"),
        (Direction::In, None) => true,
        (Direction::Out, None) => spec.egress.is_some(),
    }
}

pub(super) fn of(
    cluster: &PolicyInput,
    policy: &NetworkPolicy,
    pod: &Pod,
    direction: Direction,
) -> Result<Vec<String>, UnsupportedPolicy> {
    let Some(spec) = &policy.spec else {
        return Ok(Vec::new());
    };
    let rules: Vec<(&[NetworkPolicyPeer], &[NetworkPolicyPort])> = match direction {
        Direction::In => {
            let rules = spec.ingress.iter().flatten();
            rules
                .map(|r| (list(r.from.as_ref()), list(r.ports.as_ref())))
                .collect()
        }
        Direction::Out => {
            let rules = spec.egress.iter().flatten();
            rules
                .map(|r| (list(r.to.as_ref()), list(r.ports.as_ref())))
                .collect()
        }
    };
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    let mut lines = Vec::new();
    for (peers, ports) in rules {
        for (addresses, peer) in all_peers(cluster, namespace, peers, direction)? {
            // A named port is a port of the destination Pod.
            let called = if direction == Direction::In {
                Some(pod)
            } else {
                peer
            };
            for port in all_ports(ports, called)? {
                lines.push(format!("\t\t{addresses}{port}return\n"));
            }
        }
    }
    Ok(lines)
}

fn list<T>(items: Option<&Vec<T>>) -> &[T] {
    items.map_or(&[], Vec::as_slice)
}

/// Returns a match per peer, with its Pod if it is one. No peers match all addresses.
fn all_peers<'a>(
    cluster: &'a PolicyInput,
    namespace: &str,
    peers: &[NetworkPolicyPeer],
    direction: Direction,
) -> Result<Vec<(String, Option<&'a Pod>)>, UnsupportedPolicy> {
    if peers.is_empty() {
        return Ok(vec![(String::new(), None)]);
    }
    let (_, field) = direction.fields();
    let mut found = Vec::new();
    for peer in peers {
        if let Some(block) = &peer.ip_block {
            found.extend(range(block, field)?.map(|m| (m, None)));
            continue;
        }
        for (pod, address) in cluster.addressed() {
            if is_peer(cluster, namespace, peer, pod)? {
                found.push((format!("ip {field} {address} "), Some(pod)));
            }
        }
    }
    Ok(found)
}

fn is_peer(
    cluster: &PolicyInput,
    namespace: &str,
    peer: &NetworkPolicyPeer,
    pod: &Pod,
) -> Result<bool, UnsupportedPolicy> {
    let home = pod.metadata.namespace.as_deref().unwrap_or_default();
    let there = match &peer.namespace_selector {
        None => home == namespace,
        Some(selector) => match namespaces(cluster).get(home) {
            Some(home) => chosen(Some(selector), *home)?,
            None => false,
        },
    };
    Ok(there && chosen(peer.pod_selector.as_ref(), pod)?)
}

/// `None` for a range of IPv6: the table holds IPv4 only, and the node has no other.
fn range(block: &IPBlock, field: &str) -> Result<Option<String>, UnsupportedPolicy> {
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
fn cidr(text: &str) -> Result<&str, UnsupportedPolicy> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let fine =
        address.parse::<std::net::Ipv4Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|b| b <= 32);
    if fine {
        Ok(text)
    } else {
        Err(UnsupportedPolicy::Range(text.to_owned()))
    }
}

/// A match for each port; those with a name that the called Pod does not have match nothing.
fn all_ports(
    ports: &[NetworkPolicyPort],
    called: Option<&Pod>,
) -> Result<Vec<String>, UnsupportedPolicy> {
    if ports.is_empty() {
        return Ok(vec![String::new()]);
    }
    let mut found = Vec::new();
    for port in ports {
        let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
            "TCP" => "tcp",
            "UDP" => "udp",
            other => return Err(UnsupportedPolicy::Protocol(other.to_owned())),
        };
        match (&port.port, port.end_port) {
            (None, _) => found.push(format!("meta l4proto {protocol} ")),
            (Some(IntOrString::Int(first)), Some(last)) => {
                found.push(format!("{protocol} dport {first}-{last} "));
            }
            (Some(IntOrString::Int(port)), None) => found.push(format!("{protocol} dport {port} ")),
            (Some(IntOrString::String(name)), _) => {
                let called = called.ok_or_else(|| UnsupportedPolicy::Port(name.clone()))?;
                let numbers = numbers(called, name);
                found.extend(numbers.map(|n| format!("{protocol} dport {n} ")));
            }
        }
    }
    Ok(found)
}

/// The numbers of a Pod's ports of this name.
fn numbers<'a>(pod: &'a Pod, name: &'a str) -> impl Iterator<Item = i32> + 'a {
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let ports = containers.flat_map(|c| c.ports.iter().flatten());
    ports
        .filter(move |p| p.name.as_deref() == Some(name))
        .map(|p| p.container_port)
}
