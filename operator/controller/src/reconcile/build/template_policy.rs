//! Limits of `podTemplate` (`docs/decisions/053-pod-template-policy.md`). The operator creates Pods
//! in its own name: without limits, every user who may create Sandboxes could take over a node.
//!
//! The merged Pod is compared with the built one. Every difference must be on an allow-list.

mod allowed_fields;
pub(super) mod reserved_secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crds::contract::variable;
use crds::names;
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec};

use super::BuildError;
use super::volumes::{BIN, STATE};
use crate::config::ControllerConfig;
use shared::quantity::value;

/// Resources that a container without a limit may use without a bound.
const UNBOUNDED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Path in the error messages.
const SPEC: &str = "spec.podTemplate.spec";

/// Checks a Pod after its template.
pub(super) fn check(
    built: &Pod,
    merged: &Pod,
    config: &ControllerConfig,
) -> Result<(), BuildError> {
    let (Some(built_spec), Some(merged_spec)) = (&built.spec, &merged.spec) else {
        return Err(BuildError::at(SPEC, "must not be removed"));
    };
    check_operator_parts(built_spec, merged_spec)?;
    if config.pods.privileged_templates {
        return Ok(());
    }
    let violation = allowed_fields::first_violation(built, merged)
        .map_err(|error| BuildError::at(SPEC, error))?
        .or_else(|| foreign_workspace_claim(built_spec, merged_spec))
        .or_else(|| {
            let bounds = &config.defaults.resources.max_resources;
            excess_resource(built_spec, merged_spec, bounds)
        });
    match violation {
        Some(what) => Err(BuildError::at(
            "spec.podTemplate",
            format!("{what} is allowed only with --allow-privileged-templates"),
        )),
        None => Ok(()),
    }
}

/// Checks that the template leaves the parts of the operator as they were built.
fn check_operator_parts(built: &PodSpec, merged: &PodSpec) -> Result<(), BuildError> {
    let (Some(before), Some(after)) = (own(built), own(merged)) else {
        let path = format!("{SPEC}.containers");
        let detail = format!("the container {} must not be removed", names::CONTAINER);
        return Err(BuildError::at(path, detail));
    };
    let path = |field| format!("{SPEC}.containers[{}].{field}", names::CONTAINER);
    // Only a supervised sandbox has a command in its Pod.
    if before.command.is_some() && (before.command != after.command || after.args.is_some()) {
        let detail = "must run the supervisor; use spec.command";
        return Err(BuildError::at(path("command"), detail));
    }
    if variables(before) != variables(after) {
        let detail = "must not change variables of the operator";
        return Err(BuildError::at(path("env"), detail));
    }
    let volumes = |spec: &PodSpec| {
        let all = spec.volumes.iter().flatten();
        all.filter(|v| [BIN, STATE].contains(&v.name.as_str()))
            .cloned()
            .collect::<Vec<_>>()
    };
    if volumes(built) != volumes(merged) {
        let path = format!("{SPEC}.volumes");
        return Err(BuildError::at(
            path,
            "must not change volumes of the operator",
        ));
    }
    Ok(())
}

fn own(spec: &PodSpec) -> Option<&Container> {
    let mut all = spec.containers.iter();
    all.find(|c| c.name == names::CONTAINER)
}

fn variables(container: &Container) -> Vec<&EnvVar> {
    let all = container.env.iter().flatten();
    all.filter(|v| variable::SUPERVISOR.contains(&v.name.as_str()))
        .collect()
}

/// The workspace PVC of another sandbox, if the template refers to one.
fn foreign_workspace_claim(built: &PodSpec, merged: &PodSpec) -> Option<String> {
    let own: Vec<_> = claims(built).collect();
    let mut all = claims(merged);
    let other = all.find(|claim| names::is_workspace_claim(claim) && !own.contains(claim))?;
    Some(format!("the PVC {other} of another sandbox"))
}

fn claims(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|v| Some(v.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// The first resource beyond its bound (`--max-resources`) in a Pod whose containers the template
/// changed. Containers that run at the same time share the bound.
fn excess_resource(
    built: &PodSpec,
    merged: &PodSpec,
    bounds: &BTreeMap<String, String>,
) -> Option<String> {
    let changed = |c: &&&Container| {
        let init = built.init_containers.iter().flatten();
        let mut known = built.containers.iter().chain(init);
        !known.any(|known| known.name == c.name && known.resources == c.resources)
    };
    let is_sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let init = merged.init_containers.iter().flatten();
    let (sidecars, init): (Vec<_>, Vec<_>) = init.partition(is_sidecar);
    let running: Vec<_> = merged.containers.iter().chain(sidecars).collect();
    bounds.iter().find_map(|(name, bound)| {
        let bound_value = value(bound)?;
        let beyond = |amount: f64| amount > bound_value;
        let mut open = running.iter().chain(&init).filter(changed);
        if UNBOUNDED.contains(&name.as_str())
            && let Some(container) = open.find(|c| limit(c, name).is_none())
        {
            let container = &container.name;
            return Some(format!("container {container} without a limit of {name}"));
        }
        let total: f64 = running.iter().filter_map(|c| limit(c, name)).sum();
        let mut init = init.iter().filter(changed);
        let is_beyond = (running.iter().any(|c| changed(&c)) && beyond(total))
            || init.any(|c| limit(c, name).is_some_and(beyond));
        is_beyond.then(|| format!("more {name} than {bound} (--max-resources)"))
    })
}

fn limit(container: &Container, name: &str) -> Option<f64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    value(&limits.get(name)?.0)
}
