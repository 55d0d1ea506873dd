//! Facts about the resources of Pods that were warm.

use std::collections::BTreeMap;

use crds::names;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared::kubernetes::slim::SlimPod;
use shared::quantity::value;

use super::{IDLE_RESOURCES_ANNOTATION, ResizeProblem};

/// Resources that can change in place.
pub(crate) const RESIZED: [&str; 2] = ["cpu", "memory"];

type Quantities = Option<BTreeMap<String, Quantity>>;

/// Returns whether a Pod has the resources of a warm Pod, which its annotation names.
pub(super) fn is_small(pod: &SlimPod) -> bool {
    let idle = pod.annotation(IDLE_RESOURCES_ANNOTATION);
    let idle = idle.and_then(|text| serde_json::from_str::<ResourceRequirements>(text).ok());
    let mut containers = pod.spec.containers.iter();
    let own = containers.find(|own| own.name == names::CONTAINER);
    idle.zip(own).is_some_and(|(idle, own)| {
        same(&idle.requests, &own.resources.requests) && same(&idle.limits, &own.resources.limits)
    })
}

/// Compares amounts: the API server writes them in other units.
fn same(a: &Quantities, b: &Quantities) -> bool {
    let amount = |all: &Quantities, name: &str| value(&all.as_ref()?.get(name)?.0);
    RESIZED
        .iter()
        .all(|name| amount(a, name) == amount(b, name))
}

/// Problem that the kubelet reports (KEP 1287) with a Pod that was small. Others may be resized by
/// their owners.
pub(super) fn problem(pod: &SlimPod) -> Option<ResizeProblem> {
    pod.annotation(IDLE_RESOURCES_ANNOTATION)?;
    let pending = pod.condition("PodResizePending")?;
    (pending.status == "True").then(|| ResizeProblem {
        is_final: pending.reason.as_deref() == Some("Infeasible"),
        message: pending.message.clone().unwrap_or_default(),
    })
}
