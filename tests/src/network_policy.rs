//! Network policies as packet filter rules. The test cluster does not enforce policies, so a test
//! loads these rules into the node's network namespace. They are made from the objects in the
//! cluster, for the Pods that exist at that moment.
//!
//! All of the API is understood but SCTP and IPv6; what is not understood is an error, so that no
//! test passes by a rule that is not there.

mod rules;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt as _};

/// The name of the nftables table.
pub const TABLE: &str = "network-policies";

#[derive(Debug, thiserror::Error)]
pub enum UnsupportedPolicy {
    #[error(transparent)]
    Selector(#[from] ParseExpressionError),
    #[error("protocol {0}")]
    Protocol(String),
    #[error("address range {0}")]
    Range(String),
    #[error("port {0}")]
    Port(String),
}

/// Objects of the cluster that policies select.
#[derive(Debug)]
pub struct PolicyInput {
    pub policies: Vec<NetworkPolicy>,
    pub pods: Vec<Pod>,
    pub namespaces: Vec<Namespace>,
}

/// Direction of packets, seen from a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Direction {
    /// The field that holds the Pod's own address, and the one of its peer.
    fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::In => ("daddr", "saddr"),
            Self::Out => ("saddr", "daddr"),
        }
    }
}

impl PolicyInput {
    /// The table for `nft -f`: it takes the place of an earlier one. What a policy does not allow is
    /// dropped; answers to what was allowed pass, and so does what the node itself sends, which the
    /// API wants for the kubelet.
    pub fn ruleset(&self) -> Result<String, UnsupportedPolicy> {
        let (mut chains, mut jumps) = (String::new(), String::new());
        let mut to_node = String::new();
        for (number, (pod, own)) in self.addressed().enumerate() {
            for direction in [Direction::Out, Direction::In] {
                let Some(allowed) = self.allowed(pod, direction)? else {
                    continue;
                };
                let chain = format!("{direction:?}-{number}").to_lowercase();
                let body = allowed.concat();
                let _ = write!(chains, "\tchain {chain} {{\n{body}\t\tdrop\n\t}}\n");
                let jump = format!("\t\tip {} {own} jump {chain}\n", direction.fields().0);
                jumps += &jump;
                if direction == Direction::Out {
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
            let host = pod
                .spec
                .as_ref()
                .is_some_and(|s| s.host_network == Some(true));
            let address = pod.status.as_ref()?.pod_ip.as_deref()?;
            (!host).then_some((pod, address))
        })
    }

    /// The rules of the policies that select a Pod; `None` if none does, so that all is allowed.
    fn allowed(
        &self,
        pod: &Pod,
        direction: Direction,
    ) -> Result<Option<Vec<String>>, UnsupportedPolicy> {
        let mut selected = None;
        for policy in &self.policies {
            let Some(spec) = &policy.spec else { continue };
            let here = policy.metadata.namespace == pod.metadata.namespace;
            if !here
                || !rules::governs(spec, direction)
                || !chosen(spec.pod_selector.as_ref(), pod)?
            {
                continue;
            }
            let lines = rules::of(self, policy, pod, direction)?;
            selected.get_or_insert_with(Vec::new).extend(lines);
        }
        Ok(selected)
    }
}

/// Returns whether a selector matches an object; an absent one matches all.
fn chosen(
    selector: Option<&LabelSelector>,
    of: &impl kube::ResourceExt,
) -> Result<bool, UnsupportedPolicy> {
    Ok(match selector {
        None => true,
        Some(selector) => Selector::try_from(selector.clone())?.matches(of.labels()),
    })
}

/// The labels of each namespace.
fn namespaces(cluster: &PolicyInput) -> BTreeMap<&str, &Namespace> {
    let named = cluster.namespaces.iter();
    named
        .filter_map(|n| Some((n.metadata.name.as_deref()?, n)))
        .collect()
}
