//! Requests and limits of a sandbox: those of the spec or the defaults, times `resourceFactor`.

use std::collections::BTreeMap;

use crds::int_or_string::IntOrString;
use crds::sandbox::{Resources, SandboxSpec};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::BuildError;
use crate::config::Defaults;
pub use shared::quantity::value;

/// Resources that the factor multiplies.
const SCALED: [&str; 2] = ["cpu", "memory"];

type Quantities = BTreeMap<String, Quantity>;

/// Requests and limits of the sandbox container.
pub fn requirements(
    spec: &SandboxSpec,
    defaults: &Defaults,
) -> Result<ResourceRequirements, BuildError> {
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
pub fn memory_limit(spec: &SandboxSpec, defaults: &Defaults) -> Option<f64> {
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

fn factor(spec: &SandboxSpec) -> Result<f64, BuildError> {
    let factor = spec.resource_factor.unwrap_or(1.0);
    if factor.is_finite() && factor > 0.0 {
        return Ok(factor);
    }
    Err(BuildError::at(
        "spec.resourceFactor",
        format!("must be greater than 0, not {factor}"),
    ))
}

fn amounts(
    own: &BTreeMap<String, IntOrString>,
    defaults: &BTreeMap<String, String>,
    factor: f64,
    section: &str,
) -> Result<Quantities, BuildError> {
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
            BuildError::at(
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
    use super::*;

    fn spec(limits: &[(&str, &str)], factor: Option<f64>) -> SandboxSpec {
        let limits = limits.iter().map(|(name, amount)| {
            (
                (*name).to_owned(),
                IntOrString::String((*amount).to_owned()),
            )
        });
        SandboxSpec {
            resources: Some(Resources {
                requests: BTreeMap::new(),
                limits: limits.collect(),
            }),
            resource_factor: factor,
            ..SandboxSpec::default()
        }
    }

    fn built(spec: &SandboxSpec) -> [String; 4] {
        let built = requirements(spec, &Defaults::default()).unwrap();
        let (requests, limits) = (built.requests.unwrap(), built.limits.unwrap());
        [
            &requests["cpu"],
            &requests["memory"],
            &limits["cpu"],
            &limits["memory"],
        ]
        .map(|amount| amount.0.clone())
    }

    #[test]
    fn defaults_apply_without_resources_in_spec() {
        assert_eq!(
            built(&SandboxSpec::default()),
            ["250m", "512Mi", "2", "2Gi"]
        );
    }

    #[test]
    fn factor_multiplies_and_is_capped() {
        let twice = built(&spec(&[("memory", "1Gi")], Some(2.0)));
        assert_eq!(twice, ["500m", "1073741824", "4000m", "2147483648"]);
        let most = built(&spec(&[], Some(64.0)));
        assert_eq!(most[2], "16000m");
    }

    #[test]
    fn default_request_is_lowered_to_limit_of_spec() {
        let small = built(&spec(&[("memory", "128Mi"), ("cpu", "100m")], None));
        assert_eq!(small, ["100m", "128Mi", "100m", "128Mi"]);
    }

    #[test]
    fn request_of_spec_raises_default_limit() {
        let mut spec = spec(&[], None);
        let resources = spec.resources.get_or_insert_default();
        let amount = IntOrString::String("4Gi".to_owned());
        resources.requests.insert("memory".to_owned(), amount);
        assert_eq!(built(&spec), ["250m", "4Gi", "2", "4Gi"]);
    }

    #[test]
    fn max_resources_caps_requests_and_limits() {
        let mut defaults = Defaults::default();
        defaults.max_resources.insert("memory".into(), "1Gi".into());
        let built = requirements(&spec(&[("memory", "64Gi")], Some(4.0)), &defaults).unwrap();
        let amount = |amounts: Option<Quantities>| amounts.unwrap()["memory"].0.clone();
        assert_eq!(amount(built.limits), "1Gi");
        assert_eq!(amount(built.requests), "1Gi");
    }

    #[test]
    fn ephemeral_storage_is_limited_and_not_scaled() {
        let built = requirements(&spec(&[], Some(4.0)), &Defaults::default()).unwrap();
        assert_eq!(built.limits.unwrap()["ephemeral-storage"].0, "10Gi");
        assert_eq!(built.requests.unwrap()["ephemeral-storage"].0, "0");
    }

    #[test]
    fn invalid_factor_is_rejected() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = requirements(&spec(&[], Some(factor)), &Defaults::default());
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with("spec.resourceFactor: "), "{error}");
        }
    }

    #[test]
    fn invalid_quantity_is_reported_with_its_path() {
        let error = requirements(&spec(&[("memory", "much")], None), &Defaults::default());
        assert_eq!(
            error.unwrap_err().to_string(),
            "spec.resources.limits.memory: \"much\" is not a quantity (examples: 500m, 2Gi)"
        );
    }
}
