//! Decides which warm Pods of a pool are created and deleted. It is pure, as the planner of
//! sandboxes is.

use std::cmp::Reverse;

use crds::int_or_string::IntOrString;
use crds::pool::SandboxPoolSpec;

use super::warm_pods::WarmPod;

/// Bounds of a rollout without their own in the spec, as those of Deployments.
const DEFAULT_BOUND: &str = "25%";

/// What has to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolPlan {
    /// Number of Pods to create.
    pub(crate) create: usize,
    /// Uids of Pods to delete.
    pub(crate) delete: Vec<String>,
    /// Pods that are ready to be claimed.
    pub(crate) ready: usize,
    /// Pods that are not ready yet.
    pub(crate) starting: usize,
    /// Pods of another shape than that of the template.
    pub(crate) outdated: usize,
}

/// Plans for a pool whose template has this shape.
pub(crate) fn plan(spec: &SandboxPoolSpec, shape: &str, pods: &[WarmPod]) -> PoolPlan {
    let replicas = usize::try_from(spec.replicas).unwrap_or(usize::MAX);
    let faulty = pods
        .iter()
        .filter(|pod| pod.has_ended() && !pod.is_ending());
    let mut delete: Vec<_> = faulty.map(uid).collect();
    let existing = |pod: &&WarmPod| !pod.has_ended() && !pod.is_terminating();
    let existing: Vec<&WarmPod> = pods.iter().filter(existing).collect();
    let is_current = |pod: &&WarmPod| pod.shape == shape;
    let (current, outdated): (Vec<&WarmPod>, Vec<&WarmPod>) =
        existing.iter().copied().partition(is_current);
    let ready = existing.iter().filter(|pod| pod.is_ready()).count();

    let (surge, unavailable) = bounds(spec, replicas);
    let missing = replicas.saturating_sub(current.len());
    let room = (replicas + surge).saturating_sub(existing.len());

    // Outdated Pods that are not ready are of no use; the others go as far as enough stay ready.
    let replaceable = outdated.iter().filter(|pod| !pod.is_ending());
    let (old_ready, old_starting): (Vec<&WarmPod>, Vec<&WarmPod>) =
        replaceable.partition(|pod| pod.is_ready());
    let spare = ready.saturating_sub(replicas.saturating_sub(unavailable));
    delete.extend(old_starting.iter().map(|pod| uid(pod)));
    delete.extend(old_ready.iter().take(spare).map(|pod| uid(pod)));

    let mut surplus: Vec<_> = current.iter().filter(|pod| !pod.is_ending()).collect();
    surplus.sort_by_key(|pod| (pod.is_ready(), Reverse(pod.facts.created_at)));
    let excess = current.len().saturating_sub(replicas);
    delete.extend(surplus.iter().take(excess).map(|pod| uid(pod)));

    PoolPlan {
        create: missing.min(room),
        delete,
        ready,
        starting: existing.len() - ready,
        outdated: outdated.len(),
    }
}

fn uid(pod: &WarmPod) -> String {
    pod.facts.uid.clone()
}

/// Pods above and below `replicas` that a rollout may have. One of the two is above 0, or it would
/// make no progress.
fn bounds(spec: &SandboxPoolSpec, replicas: usize) -> (usize, usize) {
    let rollout = spec.rollout.as_ref();
    let default = IntOrString::String(DEFAULT_BOUND.to_owned());
    let surge = rollout.and_then(|rollout| rollout.max_surge.as_ref());
    let unavailable = rollout.and_then(|rollout| rollout.max_unavailable.as_ref());
    let surge = share(surge.unwrap_or(&default), replicas, usize::div_ceil);
    let unavailable = share(unavailable.unwrap_or(&default), replicas, |n, d| n / d);
    if surge + unavailable == 0 {
        return (1, 0);
    }
    (surge, unavailable)
}

/// A count, or a percentage of `replicas`. Others count as 0; the schema rejects them.
fn share(bound: &IntOrString, replicas: usize, divide: fn(usize, usize) -> usize) -> usize {
    match bound {
        IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
            divide(replicas.saturating_mul(percent.unwrap_or(0)), 100)
        }
    }
}
