//! Network policies of the chart.

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped, warning};

const ACTION: &str = "helm upgrade the release with networkPolicy.enabled=true";

pub(super) fn check(facts: &Facts) -> Outcome {
    for component in ["controller", "gateway"] {
        let deployment = facts.deployment(component)?;
        let name = format!("{}-{component}", facts.name);
        let Some(policy) = facts.find(Resource::OwnPolicies, &name)? else {
            return Err(warning(format!("NetworkPolicy {name} is absent"), ACTION));
        };
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let selected = policy["spec"]["podSelector"]["matchLabels"].as_object();
        let selects = selected
            .is_none_or(|wanted| wanted.iter().all(|(label, value)| &labels[label] == value));
        if !selects {
            let finding = format!("NetworkPolicy {name} does not select the Pods of {name}");
            return Err(failed(finding, ACTION));
        }
    }
    let Some(sandboxes) = &facts.sandboxes else {
        return Ok("NetworkPolicies of the operator are there".into());
    };
    if facts.find(Resource::Namespaces, sandboxes)?.is_none() {
        return Err(skipped(format!("namespace {sandboxes} is absent")));
    }
    let name = format!("{}-sandboxes", facts.name);
    match facts.find(Resource::SandboxPolicies, &name)? {
        Some(_) => Ok("NetworkPolicies are there; that they are enforced is not checked".into()),
        None => Err(failed(
            format!("NetworkPolicy {name} is absent: sandboxes of {sandboxes} are not isolated"),
            ACTION,
        )),
    }
}
