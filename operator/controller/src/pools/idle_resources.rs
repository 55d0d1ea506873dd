//! Warm Pods with less CPU and memory than their sandboxes, and Pods that wait for a resume.

use std::collections::BTreeMap;

use crds::int_or_string::IntOrString;
use crds::names;
use crds::sandbox::Resources;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::facts::{IDLE_RESOURCES_ANNOTATION, RESIZED};
use crate::reconcile::build::BuildError;
use shared::quantity::value;
use shared::resources::quantity;

type Quantities = BTreeMap<String, Quantity>;

/// Requests and limits of warm Pods: those of the template with the amounts of the pool.
pub(super) fn idle(
    full: &ResourceRequirements,
    own: &Resources,
) -> Result<ResourceRequirements, BuildError> {
    let part = |full: &Option<Quantities>, own: &_, section| replaced(full.as_ref(), own, section);
    let small = ResourceRequirements {
        requests: Some(part(&full.requests, &own.requests, "requests")?),
        limits: Some(part(&full.limits, &own.limits, "limits")?),
        claims: None,
    };
    if is_guaranteed(full) != is_guaranteed(&small) {
        let message = "must not change the QoS class of the Pod: it cannot change in place";
        return Err(BuildError::at("spec.idleResources", message));
    }
    Ok(small)
}

fn replaced(
    full: Option<&Quantities>,
    own: &BTreeMap<String, IntOrString>,
    section: &str,
) -> Result<Quantities, BuildError> {
    let mut all = full.cloned().unwrap_or_default();
    for (name, amount) in own {
        let path = format!("spec.idleResources.{section}.{name}");
        let amount = quantity(amount);
        if !RESIZED.contains(&name.as_str()) || !all.contains_key(name) {
            let message = "must be cpu or memory, which the template limits too";
            return Err(BuildError::at(path, message));
        }
        if value(&amount.0).is_none() {
            let message = format!("{:?} is not a quantity (examples: 500m, 2Gi)", amount.0);
            return Err(BuildError::at(path, message));
        }
        all.insert(name.clone(), amount);
    }
    Ok(all)
}

fn is_guaranteed(resources: &ResourceRequirements) -> bool {
    let amount = |all: &Option<Quantities>, name: &str| value(&all.as_ref()?.get(name)?.0);
    let (requests, limits) = (&resources.requests, &resources.limits);
    RESIZED
        .iter()
        .all(|name| amount(requests, name) == amount(limits, name))
}

/// Gives the Pod of a pool the resources of a warm Pod.
pub(super) fn shrink(pod: &mut Pod, idle: &ResourceRequirements) {
    // Maps of text can always be serialized.
    let text = serde_json::to_string(idle).unwrap_or_default();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(IDLE_RESOURCES_ANNOTATION.to_owned(), text);
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers.filter(|container| container.name == names::CONTAINER) {
        container.resources = Some(idle.clone());
    }
}

/// Requests of a Pod that waits for a resume.
const WAITING_REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "64Mi")];

/// Lowers the requests of a Pod that waits for a resume. Limits stay those of the sandbox, because a
/// restore needs the memory at once. A Pod that its template has given other resources, or whose
/// class of service would change, keeps them.
pub(crate) fn lower_requests(pod: &mut Pod, full: &ResourceRequirements) {
    let spec = pod.spec.as_ref();
    let mut containers = spec.iter().flat_map(|spec| &spec.containers);
    let own = containers.find(|container| container.name == names::CONTAINER);
    if own.is_none_or(|own| own.resources.as_ref() != Some(full)) {
        return;
    }
    let known = |name: &str| value(&full.requests.as_ref()?.get(name)?.0);
    let is_lower = |name: &str, amount| known(name).is_none_or(|known| value(amount) < Some(known));
    let lower = WAITING_REQUESTS
        .iter()
        .filter(|(name, amount)| is_lower(name, amount));
    let amount = |text: &str| IntOrString::String(text.to_owned());
    let waiting = Resources {
        requests: lower
            .map(|(name, text)| ((*name).to_owned(), amount(text)))
            .collect(),
        ..Resources::default()
    };
    if let Ok(idle) = idle(full, &waiting) {
        shrink(pod, &idle);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn amounts(own: Value) -> Result<ResourceRequirements, String> {
        let full = json!({
            "requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "0"},
            "limits": {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "10Gi"},
        });
        let read = |error: serde_json::Error| error.to_string();
        let full = serde_json::from_value(full).map_err(read)?;
        let own = serde_json::from_value(own).map_err(read)?;
        idle(&full, &own).map_err(|error| error.to_string())
    }

    #[test]
    fn amounts_of_the_pool_replace_those_of_the_template() {
        let own = json!({"requests": {"cpu": "10m"}, "limits": {"memory": "256Mi"}});
        let expected = json!({
            "requests": {"cpu": "10m", "memory": "512Mi", "ephemeral-storage": "0"},
            "limits": {"cpu": "2", "memory": "256Mi", "ephemeral-storage": "10Gi"},
        });
        let small = amounts(own).unwrap();
        assert_eq!(serde_json::to_value(small).unwrap(), expected);
    }

    #[test]
    fn requests_of_a_waiting_pod_are_lowered_within_its_qos_class() {
        let small = json!({"cpu": "10m", "memory": "64Mi"});
        for (requests, limits, template, expected) in [
            (
                json!({"cpu": "1", "memory": "1Gi"}),
                json!({"cpu": "2", "memory": "2Gi"}),
                None,
                Some(&small),
            ),
            (
                json!({"cpu": "5m", "memory": "1Gi"}),
                json!({"cpu": "2", "memory": "2Gi"}),
                None,
                Some(&json!({"cpu": "5m", "memory": "64Mi"})),
            ),
            (
                json!({"cpu": "1", "memory": "1Gi"}),
                json!({"cpu": "1", "memory": "1Gi"}),
                None,
                None,
            ),
            (
                json!({"memory": "1Gi"}),
                json!({"cpu": "2", "memory": "1Gi"}),
                None,
                None,
            ),
            (
                json!({"cpu": "1", "memory": "1Gi"}),
                json!({"cpu": "2", "memory": "2Gi"}),
                Some(json!({"limits": {"cpu": "3"}})),
                None,
            ),
        ] {
            let full = json!({"requests": requests, "limits": limits});
            let resources = template.clone().unwrap_or_else(|| full.clone());
            let containers = json!([{"name": "sandbox", "resources": resources}]);
            let pod = json!({"metadata": {}, "spec": {"containers": containers}});
            let mut pod: Pod = serde_json::from_value(pod).unwrap();
            lower_requests(&mut pod, &serde_json::from_value(full.clone()).unwrap());
            let pod = serde_json::to_value(pod).unwrap();
            let lowered = expected.map(|requests| json!({"requests": requests, "limits": limits}));
            let idle = &pod["metadata"]["annotations"][IDLE_RESOURCES_ANNOTATION];
            assert_eq!(idle.is_string(), lowered.is_some(), "{full}");
            let made = &pod["spec"]["containers"][0]["resources"];
            assert_eq!(*made, lowered.unwrap_or(resources), "{full}");
        }
    }

    #[test]
    fn amounts_that_cannot_be_resized_are_rejected_by_path() {
        for (own, path) in [
            (
                json!({"limits": {"ephemeral-storage": "1Gi"}}),
                "spec.idleResources.limits.ephemeral-storage",
            ),
            (
                json!({"requests": {"nvidia.com/gpu": 1}}),
                "spec.idleResources.requests.nvidia.com/gpu",
            ),
            (
                json!({"requests": {"cpu": "much"}}),
                "spec.idleResources.requests.cpu",
            ),
            (
                json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                "spec.idleResources",
            ),
        ] {
            let error = amounts(own.clone()).unwrap_err();
            assert!(error.starts_with(&format!("{path}: ")), "{own}: {error}");
        }
    }
}
