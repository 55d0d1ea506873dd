//! The checks, in the order of the report. Each is pure and has one file.

mod api_server;
mod certificates;
mod clock;
mod crds;
mod deployments;
mod dns;
mod http_route;
mod keys;
mod lease;
mod limit_ranges;
mod namespace;
mod network;
mod nodes;
mod probes;
mod quota;
mod rights;
mod runtime_class;
mod sandbox_needs;
mod service;
mod storage;
#[cfg(test)]
mod tests;

use super::facts::Facts;
use super::finding::{Finding, Outcome};

type Check = fn(&Facts) -> Outcome;

const CHECKS: [(&str, Check); 22] = [
    ("api-server", api_server::check),
    ("clock", clock::check),
    ("nodes", nodes::check),
    ("crds", crds::check),
    ("controller", deployments::controller),
    ("gateway", deployments::gateway),
    ("lease", lease::check),
    ("rbac", rights::check),
    ("root-key", keys::root_key),
    ("api-keys", keys::api_keys),
    ("namespace", namespace::check),
    ("quota", quota::check),
    ("limit-ranges", limit_ranges::check),
    ("storage", storage::check),
    ("runtime-class", runtime_class::check),
    ("probes", probes::check),
    ("network-policies", network::check),
    ("service", service::check),
    ("ingress", certificates::ingress),
    ("http-route", http_route::check),
    ("certificates", certificates::check),
    ("dns", dns::check),
];

pub(super) fn run(facts: &Facts) -> Vec<Finding> {
    let finding = |(id, check): (&'static str, Check)| Finding::new(id, check(facts));
    CHECKS.into_iter().map(finding).collect()
}
