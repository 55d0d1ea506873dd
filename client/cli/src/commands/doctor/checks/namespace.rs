//! Namespace of sandboxes.

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped, warning};

const LABEL: &str = "pod-security.kubernetes.io/enforce";

pub(super) fn check(facts: &Facts) -> Outcome {
    facts.deployment("gateway")?;
    let Some(name) = &facts.sandboxes else {
        return Err(skipped("the operator serves all namespaces"));
    };
    let Some(namespace) = facts.find(Resource::Namespaces, name)? else {
        return Err(failed(
            format!("namespace {name} of sandboxes is absent"),
            format!("kubectl create namespace {name}, then helm upgrade the release"),
        ));
    };
    if namespace["status"]["phase"] == "Terminating" {
        return Err(failed(
            format!("namespace {name} is being deleted"),
            format!("kubectl describe namespace {name}"),
        ));
    }
    if namespace["metadata"]["labels"][LABEL] == "restricted" {
        return Err(warning(
            format!(
                "namespace {name} enforces Pod Security `restricted`: sandboxes that start as root are rejected"
            ),
            format!("kubectl label --overwrite namespace {name} {LABEL}=baseline"),
        ));
    }
    Ok(format!("namespace {name} accepts sandboxes"))
}
