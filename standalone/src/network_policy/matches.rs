//! Parts of policies as matches of packets, and their validation.

use std::fmt::Write as _;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{ParseExpressionError, Selector, SelectorExt as _};

/// Part of a policy that has no meaning.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPolicy {
    #[error("selector: {0}")]
    Selector(#[from] ParseExpressionError),
    #[error("policy type {0:?} must be Ingress or Egress")]
    Type(String),
    #[error("address range {0:?} must be in CIDR notation")]
    Range(String),
    #[error("{0:?} is not within {1:?}")]
    Except(String, String),
    #[error("a peer must have either an ipBlock, or selectors")]
    Peer,
    #[error(
        "port {0:?}: the protocol must be TCP, UDP or SCTP, the port from 1 to 65535 or a name, and \
         endPort not below a numeric port"
    )]
    Port(Box<NetworkPolicyPort>),
}

/// Checks what the types of a policy leave open.
pub fn validate(policy: &NetworkPolicy) -> Result<(), InvalidPolicy> {
    let Some(spec) = &policy.spec else {
        return Ok(());
    };
    parse_selector(spec.pod_selector.as_ref())?;
    for kind in spec.policy_types.iter().flatten() {
        if !["Ingress", "Egress"].contains(&kind.as_str()) {
            return Err(InvalidPolicy::Type(kind.clone()));
        }
    }
    let ingress = spec.ingress.iter().flatten();
    let egress = spec.egress.iter().flatten();
    let ingress = ingress.map(|rule| (&rule.from, &rule.ports));
    for (peers, ports) in ingress.chain(egress.map(|rule| (&rule.to, &rule.ports))) {
        peers.iter().flatten().try_for_each(validate_peer)?;
        for port in ports.iter().flatten() {
            port_matches(port, None)?;
        }
    }
    Ok(())
}

fn validate_peer(peer: &NetworkPolicyPeer) -> Result<(), InvalidPolicy> {
    let selectors = [&peer.namespace_selector, &peer.pod_selector];
    let has_selector = selectors.iter().any(|selector| selector.is_some());
    if has_selector == peer.ip_block.is_some() {
        return Err(InvalidPolicy::Peer);
    }
    for selector in selectors.into_iter().flatten() {
        parse_selector(Some(selector))?;
    }
    let range = peer.ip_block.as_ref().map(|block| address_range(block, ""));
    range.transpose().map(drop)
}

/// Parses a selector. An absent one matches all.
pub(super) fn parse_selector(selector: Option<&LabelSelector>) -> Result<Selector, InvalidPolicy> {
    Ok(selector.cloned().unwrap_or_default().try_into()?)
}

/// Returns whether a selector matches a Pod. One that cannot be read matches all.
pub(super) fn is_selected(selector: Option<&Selector>, pod: &Pod) -> bool {
    selector.is_none_or(|selector| selector.matches(pod.labels()))
}

/// `None` for a range of IPv6, which Pods do not have.
pub(super) fn address_range(block: &IPBlock, field: &str) -> Result<Option<String>, InvalidPolicy> {
    let whole = range(&block.cidr)?;
    let mut text = format!("ip {field} {whole} ");
    for except in block.except.iter().flatten() {
        let part = range(except)?;
        if !whole.contains(&part) {
            return Err(InvalidPolicy::Except(except.clone(), block.cidr.clone()));
        }
        let _ = write!(text, "ip {field} != {part} ");
    }
    Ok(matches!(whole, IpNet::V4(_)).then_some(text))
}

fn range(text: &str) -> Result<IpNet, InvalidPolicy> {
    let range: Result<IpNet, _> = text.parse();
    range
        .map(|range| range.trunc())
        .map_err(|_| InvalidPolicy::Range(text.to_owned()))
}

/// Matches for a port; one with a name that the called Pod does not have matches nothing.
pub(super) fn port_matches(
    port: &NetworkPolicyPort,
    called: Option<&Pod>,
) -> Result<Vec<String>, InvalidPolicy> {
    let invalid = || InvalidPolicy::Port(Box::new(port.clone()));
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    if !["TCP", "UDP", "SCTP"].contains(&protocol) {
        return Err(invalid());
    }
    let lower = protocol.to_lowercase();
    let number = |number: i32| match u16::try_from(number) {
        Ok(0) | Err(_) => Err(invalid()),
        Ok(number) => Ok(number),
    };
    let single = |number: i32| format!("{lower} dport {number} ");
    Ok(match (&port.port, port.end_port) {
        (None, None) => vec![format!("meta l4proto {lower} ")],
        (Some(IntOrString::Int(first)), None) => vec![single(number(*first)?.into())],
        (Some(IntOrString::Int(first)), Some(last)) if *first <= last => {
            vec![format!(
                "{lower} dport {}-{} ",
                number(*first)?,
                number(last)?
            )]
        }
        (Some(IntOrString::String(name)), None) => {
            let numbers = named_ports(called, name, protocol);
            numbers.map(single).collect()
        }
        _ => return Err(invalid()),
    })
}

fn named_ports(pod: Option<&Pod>, name: &str, protocol: &str) -> impl Iterator<Item = i32> {
    let containers = pod.into_iter().flat_map(|pod| &pod.spec);
    let containers = containers.flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.filter(move |port| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    named.map(|port| port.container_port)
}
