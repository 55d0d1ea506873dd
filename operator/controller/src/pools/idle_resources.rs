//! Warm Pods with less CPU and memory than their sandboxes.

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
