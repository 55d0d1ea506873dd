//! Decides which warm Pods of a pool are created and deleted. It is pure, as the planner of
//! sandboxes is.

use std::cmp::Reverse;
use std::sync::Arc;

use crds::int_or_string::IntOrString;
use crds::pool::SandboxPoolSpec;
use jiff::Timestamp;

use super::warm_pods::WarmPod;

/// Bounds of a rollout without their own in the spec, as those of Deployments.
const DEFAULT_BOUND: &str = "25%";

/// Next step of a pool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolPlan {
    /// Number of warm Pods that the pool is to have.
    pub(crate) desired: usize,
    /// Number of Pods to create.
    pub(crate) create: usize,
    /// Uids of Pods to delete.
    pub(crate) delete: Vec<String>,
    /// Pods that are ready to be claimed.
    pub(crate) ready: usize,
    /// Pods that are not ready yet.
    pub(crate) starting: usize,
    /// Pods of another revision than that of the template.
    pub(crate) outdated: usize,
    /// Pods that have ended, or are not ready after the time for a start.
    pub(crate) ended: usize,
    /// No Pod can be made from the template.
    pub(crate) is_blocked: bool,
}

impl PoolPlan {
    /// Keeps the Pods of a pool whose template no Pod can be made from.
    pub(crate) fn blocked(replicas: usize, pods: &[Arc<WarmPod>]) -> Self {
        let existing = pods
            .iter()
            .filter(|pod| !pod.has_ended() && !pod.is_terminating());
        let (ready, starting): (Vec<_>, Vec<_>) = existing.partition(|pod| pod.is_ready());
        Self {
            desired: replicas,
            ready: ready.len(),
            starting: starting.len(),
            outdated: ready.len() + starting.len(),
            is_blocked: true,
            ..Self::default()
        }
    }
}

/// Plans for a pool that is to have `replicas` Pods of this revision. Pods that were created before
/// `oldest_start` should be ready.
pub(crate) fn plan(
    spec: &SandboxPoolSpec,
    replicas: usize,
    revision: &str,
    pods: &[Arc<WarmPod>],
    oldest_start: Timestamp,
) -> PoolPlan {
    let has_ended = |pod: &WarmPod| {
        let is_late = pod.facts.created_at.is_some_and(|at| at <= oldest_start);
        pod.has_ended() || is_late && !pod.is_ready() && !pod.is_ending()
    };
    let faulty = pods.iter().filter(|pod| has_ended(pod) && !pod.is_ending());
    let mut delete: Vec<_> = faulty.map(|pod| uid(pod)).collect();
    let ended = delete.len();
    let existing = pods.iter().map(|pod| &**pod);
    let existing = existing.filter(|pod| !has_ended(pod) && !pod.is_terminating());
    let existing: Vec<&WarmPod> = existing.collect();
    let is_current = |pod: &&WarmPod| pod.revision == revision;
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
        desired: replicas,
        create: missing.min(room),
        delete,
        ready,
        starting: existing.len() - ready,
        outdated: outdated.len(),
        ended,
        is_blocked: false,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::{Container, ContainerState, PodFacts, PodPhase};
    use crate::pools::warm_pods::tests::warm_pod;

    /// Pods by a text: `r` ready, `s` starting, `x` ended, `t` taken; capitals are outdated.
    fn pods(text: &str) -> Vec<Arc<WarmPod>> {
        let pod = |(at, letter): (usize, char)| {
            let runs = matches!(letter.to_ascii_lowercase(), 'r' | 't');
            let state = if runs {
                ContainerState::Running { started_at: None }
            } else {
                ContainerState::default()
            };
            let created_at = Timestamp::from_second(at.try_into().unwrap()).ok();
            let facts = PodFacts {
                name: format!("p{at}"),
                uid: format!("{at}{letter}"),
                created_at,
                phase: match letter.to_ascii_lowercase() {
                    'x' => PodPhase::Failed,
                    _ if runs => PodPhase::Running,
                    _ => PodPhase::Pending,
                },
                ip: runs.then(|| "10.0.0.1".to_owned()),
                container: Container {
                    state,
                    ..Container::default()
                },
                ..PodFacts::default()
            };
            let shape = if letter.is_ascii_uppercase() {
                "old"
            } else {
                "new"
            };
            Arc::new(warm_pod(shape, Arc::new(facts), letter == 't'))
        };
        text.chars().enumerate().map(pod).collect()
    }

    /// Number of creations, and the letters of deleted Pods.
    fn planned(replicas: u32, rollout: &serde_json::Value, text: &str) -> (usize, String) {
        let spec = json!({"template": {"image": "i"}, "replicas": replicas, "rollout": rollout});
        let spec: SandboxPoolSpec = serde_json::from_value(spec).unwrap();
        let replicas = usize::try_from(spec.replicas).unwrap();
        // The first Pod should be ready by now.
        let oldest_start = Timestamp::UNIX_EPOCH;
        let plan = plan(&spec, replicas, "new", &pods(text), oldest_start);
        let letter = |uid: &String| uid.trim_start_matches(char::is_numeric).to_owned();
        (plan.create, plan.delete.iter().map(letter).collect())
    }

    #[test]
    fn pool_has_replicas_and_never_more_than_the_surge() {
        let none = json!(null);
        let one_by_one = json!({"maxSurge": 1, "maxUnavailable": 0});
        let in_place = json!({"maxSurge": 0, "maxUnavailable": "50%"});
        let stuck = json!({"maxSurge": 0, "maxUnavailable": 0});
        for (replicas, rollout, text, create, delete) in [
            (0, &none, "", 0, ""),
            (3, &none, "", 3, ""),
            (3, &none, "rs", 1, ""),
            // A claim in progress is not replaced before it has succeeded.
            (3, &none, "rrt", 0, ""),
            (3, &none, "rrx", 1, "x"),
            (3, &none, "srr", 1, "s"),
            // Too many: those that are not ready first, then the newest.
            (1, &none, "rsr", 0, "sr"),
            (0, &none, "tr", 0, "r"),
            // A rollout replaces as many as may be missing.
            (4, &none, "RRRR", 1, "R"),
            (4, &one_by_one, "RRRR", 1, ""),
            (4, &one_by_one, "RRRRs", 0, ""),
            (4, &one_by_one, "RRRRr", 0, "R"),
            (4, &in_place, "RRRR", 0, "RR"),
            (4, &in_place, "RRss", 0, ""),
            (4, &stuck, "RRRR", 1, ""),
            (4, &none, "RSSS", 1, "SSS"),
            (0, &none, "RS", 0, "SR"),
        ] {
            let planned = planned(replicas, rollout, text);
            assert_eq!(
                planned,
                (create, delete.to_owned()),
                "{replicas} {rollout} {text}"
            );
        }
    }
}
