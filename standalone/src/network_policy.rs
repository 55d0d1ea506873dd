//! Network policies as packet filter rules: a pure function of policies, namespaces and the Pods that
//! have an address. The process node enforces them with it, and tests load the rules into the network
//! of a cluster that enforces none. An independent analyzer (`hack/python-analyzer`) agrees with these
//! rules, as a test checks.
//!
//! A part of a policy that cannot be read allows nothing: the policy is narrower than meant, never wider.

mod matches;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use self::matches::{address_range, is_selected, parse_selector, port_matches};
use Direction::{In, Out};

pub use self::matches::{InvalidPolicy, validate};

/// Objects of the cluster that policies select.
#[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
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

/// One policy in one direction.
struct DirectedPolicy<'a> {
    namespace: Option<String>,
    /// `None` if it cannot be read: all Pods of the namespace.
    selector: Option<Selector>,
    rules: Vec<DirectedRule<'a>>,
}

struct DirectedRule<'a> {
    /// A match for each peer, with its Pod if it is one.
    peers: Vec<(String, Option<&'a Pod>)>,
    ports: &'a [NetworkPolicyPort],
}

impl PolicyInput {
    /// The table for `nft -f`: it takes the place of an earlier one. What a policy does not allow is
    /// dropped, also in connections that exist. Answers pass, and so does what the node itself sends,
    /// which Kubernetes wants for the kubelet.
    pub fn ruleset(&self, table: &str) -> String {
        let mut chains: Vec<String> = Vec::new();
        let mut jump = |allowed: String| {
            let known = chains.iter().position(|chain| *chain == allowed);
            known.unwrap_or_else(|| {
                chains.push(allowed);
                chains.len() - 1
            })
        };
        let (mut from, mut to) = (String::new(), String::new());
        for (direction, verdicts) in [(Out, &mut from), (In, &mut to)] {
            let policies = self.directed(direction);
            for (address, pod) in self.addressed() {
                if let Some(allowed) = allowed(&policies, pod, direction) {
                    let number = jump(allowed);
                    let _ = write!(verdicts, "{address} : jump allow-{number}, ");
                }
            }
        }
        let map = |field: &str, verdicts: &str| match verdicts {
            "" => String::new(),
            _ => format!("\t\tip {field} vmap {{ {verdicts}}}\n"),
        };
        let (from, to) = (map("saddr", &from), map("daddr", &to));
        let mut text = format!("table inet {table}\ndelete table inet {table}\n");
        if chains.is_empty() {
            return text;
        }
        let _ = writeln!(text, "table inet {table} {{");
        for (number, allowed) in chains.iter().enumerate() {
            let _ = write!(text, "\tchain allow-{number} {{\n{allowed}\t\tdrop\n\t}}\n");
        }
        let answers = "\t\tct state related accept\n\t\tct direction reply accept\n";
        for (hook, jumps) in [("forward", format!("{from}{to}")), ("input", from)] {
            let _ = write!(
                text,
                "\tchain {hook} {{\n\t\ttype filter hook {hook} priority 0\n{answers}{jumps}\t}}\n"
            );
        }
        text + "}\n"
    }

    /// The Pods that have an address of their own, by address.
    fn addressed(&self) -> BTreeMap<Ipv4Addr, &Pod> {
        let addressed = self.pods.iter().filter_map(|pod| {
            let host = pod.spec.as_ref().and_then(|spec| spec.host_network);
            let status = pod.status.as_ref()?;
            let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            let address = status.pod_ip.as_deref()?.parse().ok()?;
            (host != Some(true) && !ended).then_some((address, pod))
        });
        addressed.collect()
    }

    fn directed(&self, direction: Direction) -> Vec<DirectedPolicy<'_>> {
        let addressed = self.addressed();
        let policies = self.policies.iter().filter_map(|policy| {
            let spec = policy.spec.as_ref()?;
            let types = spec.policy_types.as_deref().unwrap_or_default();
            let (applies, rules): (bool, Vec<_>) = match direction {
                In => {
                    let rules = spec.ingress.iter().flatten();
                    let rules = rules.map(|rule| (rule.from.as_deref(), rule.ports.as_deref()));
                    (
                        types.is_empty() || types.iter().any(|t| t == "Ingress"),
                        rules.collect(),
                    )
                }
                Out => {
                    let rules = spec.egress.iter().flatten();
                    let rules = rules.map(|rule| (rule.to.as_deref(), rule.ports.as_deref()));
                    let rules: Vec<_> = rules.collect();
                    let default = types.is_empty() && !rules.is_empty();
                    (default || types.iter().any(|t| t == "Egress"), rules)
                }
            };
            let rules = rules.into_iter().map(|(peers, ports)| DirectedRule {
                peers: self.peers(peers.unwrap_or_default(), policy, direction, &addressed),
                ports: ports.unwrap_or_default(),
            });
            applies.then(|| DirectedPolicy {
                namespace: policy.namespace(),
                selector: parse_selector(spec.pod_selector.as_ref()).ok(),
                rules: rules.collect(),
            })
        });
        policies.collect()
    }

    /// A match per peer. No peers match all addresses.
    fn peers<'a>(
        &self,
        peers: &[NetworkPolicyPeer],
        policy: &NetworkPolicy,
        direction: Direction,
        addressed: &BTreeMap<Ipv4Addr, &'a Pod>,
    ) -> Vec<(String, Option<&'a Pod>)> {
        if peers.is_empty() {
            return vec![(String::new(), None)];
        }
        let field = if direction == In { "saddr" } else { "daddr" };
        let mut found = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                let range = address_range(block, field).ok().flatten();
                found.extend(range.map(|range| (range, None)));
                continue;
            }
            let namespaces = peer.namespace_selector.as_ref();
            let namespaces = namespaces.map(|selector| parse_selector(Some(selector)));
            let (Ok(namespaces), Ok(pods)) = (
                namespaces.transpose(),
                parse_selector(peer.pod_selector.as_ref()),
            ) else {
                continue;
            };
            for (address, other) in addressed {
                let is_in = match &namespaces {
                    None => other.namespace() == policy.namespace(),
                    Some(selector) => self.is_namespace_selected(selector, other),
                };
                if is_in && pods.matches(other.labels()) {
                    found.push((format!("ip {field} {address} "), Some(*other)));
                }
            }
        }
        found
    }

    fn is_namespace_selected(&self, selector: &Selector, pod: &Pod) -> bool {
        let mut namespaces = self.namespaces.iter();
        let namespace = namespaces.find(|n| Some(n.name_any()) == pod.namespace());
        namespace.is_some_and(|namespace| selector.matches(namespace.labels()))
    }
}

/// The rules of the policies that select a Pod; `None` if none does, so that all is allowed.
fn allowed(policies: &[DirectedPolicy<'_>], pod: &Pod, direction: Direction) -> Option<String> {
    let selecting = policies.iter().filter(|policy| {
        policy.namespace == pod.namespace() && is_selected(policy.selector.as_ref(), pod)
    });
    let mut lines = None;
    for policy in selecting {
        let lines: &mut String = lines.get_or_insert_default();
        for rule in &policy.rules {
            rule.write(lines, pod, direction);
        }
    }
    lines
}

impl DirectedRule<'_> {
    /// Writes a line for each peer and port.
    fn write(&self, lines: &mut String, pod: &Pod, direction: Direction) {
        for (addresses, peer) in &self.peers {
            // A named port is a port of the destination Pod.
            let called = if direction == In { Some(pod) } else { *peer };
            if self.ports.is_empty() {
                let _ = writeln!(lines, "\t\t{addresses}return");
            }
            for port in self.ports {
                for port in port_matches(port, called).unwrap_or_default() {
                    let _ = writeln!(lines, "\t\t{addresses}{port}return");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
