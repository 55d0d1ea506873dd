//! Requests and limits of a sandbox: those of the spec or the defaults, times `resourceFactor`. The
//! controller makes Pods with them, and the gateway says how much a tenant uses.

mod args;

use std::collections::BTreeMap;

use crds::int_or_string::IntOrString;
use crds::sandbox::{Resources, SandboxSpec};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::value;

pub use args::ResourceArgs;

/// Resources that the factor multiplies.
const SCALED: [&str; 2] = ["cpu", "memory"];

type Quantities = BTreeMap<String, Quantity>;

/// Resources of sandboxes that set none, and upper bounds.
#[derive(Debug, Clone)]
pub struct ResourceDefaults {
    pub requests: BTreeMap<String, String>,
    pub limits: BTreeMap<String, String>,
    /// Highest `resourceFactor` that takes effect.
    pub max_factor: f64,
    /// Upper bound per sandbox and resource.
    pub max_resources: BTreeMap<String, String>,
}

/// Requests and limits of the init container of a Pod, and of Pods that probe the cluster.
pub fn minimal_resources() -> ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        let amounts = [("cpu", cpu), ("memory", memory)];
        let amounts = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        Some(BTreeMap::from(amounts))
    };
    ResourceRequirements {
        requests: amounts("10m", "16Mi"),
        limits: amounts("1", "64Mi"),
        claims: None,
    }
}

/// Invalid field of a spec.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {detail}")]
pub struct ResourceError {
    pub path: String,
    pub detail: String,
}

impl Default for ResourceDefaults {
    fn default() -> Self {
        // The limit keeps a sandbox from filling the disk of its node. Nothing is reserved.
        let map = |cpu: &str, memory: &str, disk: &str| {
            let amounts = [
                ("cpu", cpu),
                ("memory", memory),
                ("ephemeral-storage", disk),
            ];
            BTreeMap::from(amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned())))
        };
        Self {
            requests: map("250m", "512Mi", "0"),
            limits: map("2", "2Gi", "10Gi"),
            max_factor: 8.0,
            max_resources: BTreeMap::new(),
        }
    }
}

/// Requests and limits of the sandbox container.
pub fn requirements(
    spec: &SandboxSpec,
    defaults: &ResourceDefaults,
) -> Result<ResourceRequirements, ResourceError> {
    let none = Resources::default();
    let own = spec.resources.as_ref().unwrap_or(&none);
    let factor = factor(spec)?.min(defaults.max_factor);
    let mut limits = amounts(&own.limits, &defaults.limits, factor, "limits")?;
    let mut requests = amounts(&own.requests, &defaults.requests, factor, "requests")?;
    raise_default_limits(&mut limits, own, &requests);
    let most = defaults.max_resources.iter();
    let most = most.map(|(name, amount)| (name.clone(), Quantity(amount.clone())));
    cap_at(&mut limits, &most.collect());
    cap_at(&mut requests, &limits);
    Ok(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        claims: None,
    })
}

/// Memory limit of the sandbox in bytes.
pub fn memory_limit(spec: &SandboxSpec, defaults: &ResourceDefaults) -> Option<f64> {
    let limits = requirements(spec, defaults).ok()?.limits?;
    value(&limits.get("memory")?.0)
}

/// Converts an amount of the spec into a quantity.
pub fn quantity(amount: &IntOrString) -> Quantity {
    Quantity(match amount {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    })
}

fn error_at(path: impl Into<String>, detail: String) -> ResourceError {
    ResourceError {
        path: path.into(),
        detail,
    }
}

fn factor(spec: &SandboxSpec) -> Result<f64, ResourceError> {
    let factor = spec.resource_factor.unwrap_or(1.0);
    if factor.is_finite() && factor > 0.0 {
        return Ok(factor);
    }
    Err(error_at(
        "spec.resourceFactor",
        format!("must be greater than 0, not {factor}"),
    ))
}

fn amounts(
    own: &BTreeMap<String, IntOrString>,
    defaults: &BTreeMap<String, String>,
    factor: f64,
    section: &str,
) -> Result<Quantities, ResourceError> {
    let mut all: Quantities = defaults
        .iter()
        .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
        .collect();
    all.extend(
        own.iter()
            .map(|(name, amount)| (name.clone(), quantity(amount))),
    );
    for (name, amount) in &mut all {
        let path = || format!("spec.resources.{section}.{name}");
        let plain = value(&amount.0).ok_or_else(|| {
            error_at(
                path(),
                format!("{:?} is not a quantity (examples: 500m, 2Gi)", amount.0),
            )
        })?;
        if SCALED.contains(&name.as_str()) && (factor - 1.0).abs() > f64::EPSILON {
            amount.0 = format_scaled(name, plain * factor);
        }
    }
    Ok(all)
}

/// Raises a default limit to a request that the spec sets.
fn raise_default_limits(limits: &mut Quantities, own: &Resources, requests: &Quantities) {
    for (name, limit) in limits {
        if own.requests.contains_key(name)
            && !own.limits.contains_key(name)
            && let Some(request) = requests.get(name)
            && value(&request.0) > value(&limit.0)
        {
            *limit = request.clone();
        }
    }
}

/// Lowers amounts to `most`. The API server rejects a request above its limit.
fn cap_at(amounts: &mut Quantities, most: &Quantities) {
    for (name, amount) in amounts {
        if let Some(limit) = most.get(name)
            && let (Some(given), Some(most)) = (value(&amount.0), value(&limit.0))
            && given > most
        {
            *amount = limit.clone();
        }
    }
}

/// CPU in thousandths, memory in bytes: both are exact for every quantity.
fn format_scaled(name: &str, amount: f64) -> String {
    if name == "cpu" {
        format!("{:.0}m", (amount * 1000.0).ceil())
    } else {
        format!("{:.0}", amount.ceil())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: Value) -> SandboxSpec {
        serde_json::from_value(fields).unwrap()
    }

    /// Requests and limits of CPU, memory and storage.
    fn amounts(fields: Value, max_memory: Option<&str>) -> String {
        let mut defaults = ResourceDefaults::default();
        let most = max_memory.map(|most| ("memory".to_owned(), most.to_owned()));
        defaults.max_resources.extend(most);
        let built = requirements(&spec(fields), &defaults).unwrap();
        let names = ["cpu", "memory", "ephemeral-storage"];
        let text = |all: Option<Quantities>| {
            let all = all.unwrap();
            names.map(|name| all[name].0.clone()).join(" ")
        };
        format!("{}; {}", text(built.requests), text(built.limits))
    }

    #[test]
    fn amounts_are_scaled_capped_and_fit_each_other() {
        let low = json!({"resources": {"limits": {"memory": "128Mi", "cpu": "100m"}}});
        let high = json!({"resources": {"requests": {"memory": "4Gi"}}});
        let twice = json!({"resources": {"limits": {"memory": "1Gi"}}, "resourceFactor": 2.0});
        let most = json!({"resourceFactor": 64.0});
        let large = json!({"resources": {"limits": {"memory": "64Gi"}}, "resourceFactor": 4.0});
        for (spec, max_memory, expected) in [
            (json!({}), None, "250m 512Mi 0; 2 2Gi 10Gi"),
            // A default request is lowered to the limit, a default limit is raised to the request.
            (low, None, "100m 128Mi 0; 100m 128Mi 10Gi"),
            (high, None, "250m 4Gi 0; 2 4Gi 10Gi"),
            (twice, None, "500m 1073741824 0; 4000m 2147483648 10Gi"),
            (most, None, "2000m 4294967296 0; 16000m 17179869184 10Gi"),
            (large, Some("1Gi"), "1000m 1Gi 0; 8000m 1Gi 10Gi"),
        ] {
            assert_eq!(amounts(spec, max_memory), expected);
        }
    }

    #[test]
    fn invalid_factor_or_quantity_is_reported_with_its_path() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let spec = SandboxSpec {
                resource_factor: Some(factor),
                ..SandboxSpec::default()
            };
            let error = requirements(&spec, &ResourceDefaults::default());
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with("spec.resourceFactor: "), "{error}");
        }
        let odd = spec(json!({"resources": {"limits": {"memory": "much"}}}));
        let error = requirements(&odd, &ResourceDefaults::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.resources.limits.memory: \"much\" is not a quantity (examples: 500m, 2Gi)"
        );
    }
}
