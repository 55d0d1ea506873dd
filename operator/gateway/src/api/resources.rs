//! CPU and memory of a sandbox, as the controller gives them to its container.

use std::collections::BTreeMap;

use crds::sandbox::{Phase, Resources, SandboxSpec};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize as _;
use serde_json::Value;
use shared::index::Entry;
use shared::quantity::whole;
use shared::resources::{ResourceDefaults, requirements};

/// CPU and memory; `None` for an amount that is not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) millicores: Option<u64>,
    pub(super) bytes: Option<u64>,
}

impl Amounts {
    fn of(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        let amount = |name, parts| whole(&quantities?.get(name)?.0, parts);
        Self {
            millicores: amount("cpu", 1000.0),
            bytes: amount("memory", 1.0),
        }
    }
}

/// Requests of a sandbox, from which its costs follow. Nothing for an invalid spec, which gets no
/// Pod.
pub(super) fn requests(entry: &Entry, defaults: &ResourceDefaults) -> Amounts {
    let found = requirements_of(entry, defaults);
    Amounts::of(found.as_ref().and_then(|all| all.requests.as_ref()))
}

/// Limits of a sandbox, which its quota counts. Nothing for an invalid spec, which gets no Pod.
pub(super) fn limits(entry: &Entry, defaults: &ResourceDefaults) -> Amounts {
    let found = requirements_of(entry, defaults);
    Amounts::of(found.as_ref().and_then(|all| all.limits.as_ref()))
}

pub(super) fn has_pod(phase: Phase) -> bool {
    matches!(phase, Phase::Starting | Phase::Running | Phase::Pausing)
}

fn requirements_of(entry: &Entry, defaults: &ResourceDefaults) -> Option<ResourceRequirements> {
    let spec = &entry.spec;
    let resources = spec.resources.clone();
    let filled = SandboxSpec {
        resources: resources.or_else(|| Resources::deserialize(of_pool(entry, "resources")?).ok()),
        resource_factor: factor(entry),
        ..SandboxSpec::default()
    };
    requirements(&filled, defaults).ok()
}

/// Factor of the sandbox or of its pool.
pub(super) fn factor(entry: &Entry) -> Option<f64> {
    let own = entry.spec.resource_factor;
    own.or_else(|| of_pool(entry, "resourceFactor")?.as_f64())
}

/// A field of the template of the pool that the sandbox was made from. Only that is read: a list has
/// thousands of sandboxes.
fn of_pool<'a>(entry: &'a Entry, field: &str) -> Option<&'a Value> {
    let kept = entry.status.pool.as_ref();
    let kept = kept.filter(|kept| entry.spec.pool.as_ref() == Some(&kept.name))?;
    kept.spec.get("template")?.get(field)
}
