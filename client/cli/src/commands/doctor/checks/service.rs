//! Service of the gateway.

use serde_json::Value;

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped};

pub(super) fn check(facts: &Facts) -> Outcome {
    let (name, namespace) = (format!("{}-gateway", facts.name), &facts.namespace);
    let deployment = facts.deployment("gateway")?;
    if facts.find(Resource::Services, &name)?.is_none() {
        let finding = format!("Service {name} is absent");
        return Err(failed(finding, "helm upgrade the release"));
    }
    if deployment["status"]["availableReplicas"]
        .as_u64()
        .unwrap_or(0)
        == 0
    {
        return Err(skipped("no gateway is available"));
    }
    let slices = facts.list(Resource::EndpointSlices)?;
    let is_of_service =
        |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name.as_str();
    let endpoints = slices.iter().filter(is_of_service);
    let endpoints = endpoints
        .filter_map(|slice| slice["endpoints"].as_array())
        .flatten();
    let ready = endpoints
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .count();
    if ready == 0 {
        return Err(failed(
            format!("Service {name} has no ready endpoint: its selector matches no gateway"),
            format!(
                "kubectl -n {namespace} describe service {name}, then helm upgrade the release"
            ),
        ));
    }
    Ok(format!("Service {name} has {ready} endpoints"))
}
