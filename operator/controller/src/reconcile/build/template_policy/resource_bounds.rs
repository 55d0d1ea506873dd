//! Bound of the resources of all containers together (`--max-resources`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::reconcile::build::resources::value;

/// Resources that a container without a limit may use without a bound.
const UNBOUNDED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The first resource beyond its bound in a Pod whose containers the template changed.
pub(super) fn first_violation(
    built: &PodSpec,
    merged: &PodSpec,
    bounds: &BTreeMap<String, String>,
) -> Option<String> {
    let changed = |c: &&Container| {
        let mut known = built
            .containers
            .iter()
            .chain(built.init_containers.iter().flatten());
        !known.any(|known| known.name == c.name && known.resources == c.resources)
    };
    let init = merged.init_containers.iter().flatten();
    let (sidecars, init): (Vec<_>, Vec<_>) =
        init.partition(|c| c.restart_policy.as_deref() == Some("Always"));
    let running: Vec<_> = merged.containers.iter().chain(sidecars).collect();
    bounds.iter().find_map(|(name, bound)| {
        let bound_value = value(bound)?;
        let beyond = |amount: f64| amount > bound_value;
        let all = running.iter().chain(&init);
        let mut open = all
            .copied()
            .filter(changed)
            .filter(|c| limit(c, name).is_none());
        let total: f64 = running.iter().filter_map(|c| limit(c, name)).sum();
        let mut init = init.iter().copied().filter(changed);
        if UNBOUNDED.contains(&name.as_str())
            && let Some(container) = open.next()
        {
            return Some(format!(
                "container {} without a limit of {name}",
                container.name
            ));
        }
        let is_beyond = running.iter().copied().any(|c| changed(&c)) && beyond(total);
        let is_beyond = is_beyond || init.any(|c| limit(c, name).is_some_and(beyond));
        is_beyond.then(|| format!("more {name} than {bound} (--max-resources)"))
    })
}

fn limit(container: &Container, name: &str) -> Option<f64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    value(&limits.get(name)?.0)
}
