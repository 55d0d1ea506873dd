//! Warm Pods with less CPU and memory than their sandboxes: what they have at first, and the raise
//! in place after a claim.

use std::collections::BTreeMap;

use crds::names;
use crds::sandbox::Resources;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::facts::{IDLE_RESOURCES_ANNOTATION, RESIZED};
use crate::reconcile::build::BuildError;
use crate::reconcile::build::resources::{quantity, requirements, value};
use crate::reconcile::error::ApplyError;
use shared::index::Entry;
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::slim::SlimPod;

/// Subresource of Pods whose resources can change in place.
const SUBRESOURCE: &str = "resize";

type Quantities = BTreeMap<String, Quantity>;

/// Returns whether the cluster changes the resources of Pods in place.
pub(crate) async fn is_supported(context: &Context) -> Result<bool, kube::Error> {
    let name = format!("pods/{SUBRESOURCE}");
    let ask = async || {
        let known = context.client.list_core_api_resources("v1").await?;
        Ok(known.resources.iter().any(|resource| resource.name == name))
    };
    context.resizes.get_or_try_init(ask).await.copied()
}

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
    own: &BTreeMap<String, crds::int_or_string::IntOrString>,
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

/// Gives a claimed Pod the resources of its sandbox. A rejection is final for this Pod.
pub(crate) async fn resize(
    context: &Context,
    entry: &Entry,
    name: &str,
    uid: &str,
) -> Result<(), ApplyError> {
    let full = requirements(&entry.spec, &context.config.defaults)?;
    let part = |all: Option<Quantities>| -> Quantities {
        let all = all.unwrap_or_default().into_iter();
        all.filter(|(name, _)| RESIZED.contains(&name.as_str()))
            .collect()
    };
    let resources = json!({"requests": part(full.requests), "limits": part(full.limits)});
    let patch = json!({
        "metadata": {"uid": uid},
        "spec": {"containers": [{"name": names::CONTAINER, "resources": resources}]},
    });
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let api = context.api::<SlimPod>(&entry.key);
    let patch = Patch::Strategic(patch);
    match with_timeout(api.patch_subresource(SUBRESOURCE, name, &params, &patch)).await {
        Ok(resized) => context.pods.apply(&resized),
        Err(error) if error.is_not_found() => {}
        Err(error) if matches!(error.code(), Some(400 | 403 | 422)) => {
            let memory = &context.memory;
            memory.record_resize_rejection(&entry.key, uid, error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
