//! Status of pools: numbers of Pods, and conditions. Pools that are only templates get no status.

use std::collections::HashMap;
use std::time::Duration;

use crds::pool::{ImagePulls, SandboxPoolStatus};
use crds::{SandboxPool, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::Pool;
use super::image_pulls::{IMAGES_PULLED, Progress};
use super::plan::PoolPlan;
use crate::context::Context;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};

/// Least time between two writes for one pool: claims change its numbers many times a second.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest message of a condition, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

const READY: &str = "Ready";
const OUTDATED: &str = "Outdated";
const OVERLAPPING: &str = "Overlapping";

/// Result of a reconcile of a pool.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    pub(crate) plan: PoolPlan,
    /// Number of sandboxes with a Pod of this pool.
    pub(crate) claimed: usize,
    /// Reason for which Pods do not become ready.
    pub(crate) problem: Option<String>,
    /// Pool of the same template whose Pods are claimed first.
    pub(crate) overlap: Option<String>,
    /// Progress of pulls ahead; `None` if it is unknown or there are none.
    pub(crate) image_pulls: Option<Progress>,
}

impl Observation {
    pub(crate) fn new(plan: PoolPlan, problem: Option<String>) -> Self {
        Self {
            plan,
            problem,
            ..Self::default()
        }
    }
}

/// Writer of the statuses of pools.
#[derive(Debug, Default)]
pub(crate) struct StatusWriter {
    /// Time of the last write, by pool.
    written_at: Mutex<HashMap<Key, Instant>>,
}

impl StatusWriter {
    pub(crate) fn forget(&self, pool: &Key) {
        self.written_at.lock().remove(pool);
    }

    /// Time of the next write; `None`: now.
    pub(crate) fn next_write(&self, pool: &Key) -> Option<Instant> {
        let next = *self.written_at.lock().get(pool)? + WRITE_INTERVAL;
        (next > Instant::now()).then_some(next)
    }

    /// Writes the status if it has changed.
    pub(crate) async fn write(
        &self,
        context: &Context,
        key: &Key,
        pool: &Pool,
        observation: &Observation,
    ) -> Result<(), CallError> {
        let Some(status) = status(pool, &key.name, observation, context.clock.now()) else {
            return Ok(());
        };
        let now = Instant::now();
        self.written_at.lock().insert(key.clone(), now);
        // The uid protects another pool that has taken the name meanwhile.
        let mut patch = json!({"metadata": {"uid": pool.uid}, "status": status});
        // Empty fields are not serialized, and a field that a patch lacks stays.
        patch["status"]["conditions"] = json!(status.conditions);
        patch["status"]["selector"] = json!(status.selector);
        let patch = Patch::Merge(patch);
        let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
        let api = context.api::<SandboxPool>(key);
        match with_timeout(api.patch_status(&key.name, &params, &patch)).await {
            Ok(written) => {
                let (object, policy) = ((key, &*pool.uid), pool.spec.when_exhausted);
                let events = &context.events;
                events.publish_pool_changes(object, &pool.status, &status, policy);
                context.pools.apply_written(key, written);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// New status of a pool; `None` if its status is up to date.
fn status(
    pool: &Pool,
    name: &str,
    observation: &Observation,
    now: Timestamp,
) -> Option<SandboxPoolStatus> {
    let Observation { plan, claimed, .. } = observation;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let is_warm = plan.desired > 0 || plan.ready + plan.starting > 0;
    let mut all = Vec::new();
    if is_warm {
        all = conditions(pool, observation, now);
    }
    all.extend(images_pulled(pool, observation.image_pulls.as_ref(), now));
    let status = SandboxPoolStatus {
        desired: count(plan.desired),
        ready: count(plan.ready),
        starting: count(plan.starting),
        claimed: count(*claimed),
        selector: is_warm.then(|| names::warm_selector(name)),
        revision: Some(pool.revision.clone()),
        outdated: count(plan.outdated),
        observed_generation: Some(pool.generation),
        conditions: all,
    };
    let is_template =
        !is_warm && status.conditions.is_empty() && pool.status == SandboxPoolStatus::default();
    (status != pool.status && !is_template).then_some(status)
}

fn conditions(pool: &Pool, observation: &Observation, now: Timestamp) -> Vec<Condition> {
    let plan = &observation.plan;
    let is_complete = plan.ready >= plan.desired && !plan.is_blocked;
    let (reason, message) = match &observation.problem {
        _ if is_complete => ("Complete", "all warm Pods are ready"),
        Some(problem) => ("Blocked", problem.as_str()),
        None => ("Scaling", "warm Pods are starting"),
    };
    let mut all = vec![condition(pool, READY, is_complete, reason, message, now)];
    if let Some(other) = &observation.overlap {
        let message =
            format!("the pool {other} fits the same sandboxes, which claim its Pods first");
        let reason = "SameTemplate";
        all.push(condition(pool, OVERLAPPING, true, reason, &message, now));
    }
    if plan.outdated > 0 {
        let message = "warm Pods of an earlier template are being replaced";
        all.push(condition(
            pool,
            OUTDATED,
            true,
            "TemplateChanged",
            message,
            now,
        ));
    }
    all
}

fn images_pulled(pool: &Pool, progress: Option<&Progress>, now: Timestamp) -> Option<Condition> {
    let (is_complete, reason, message) = match progress {
        None if pool.spec.image_pulls == ImagePulls::OnDemand => return None,
        None => {
            let mut old = pool.status.conditions.iter();
            return old.find(|old| old.type_ == IMAGES_PULLED).cloned();
        }
        Some(Err(error)) => (false, "Failed", error.clone()),
        Some(Ok(all)) => match all.nodes {
            None => (false, "Pulling", "the nodes are not counted yet".to_owned()),
            Some(nodes) => {
                let message = format!("{} of {nodes} nodes have the images", all.pulled);
                let reason = if all.is_complete() {
                    "Complete"
                } else {
                    "Pulling"
                };
                (all.is_complete(), reason, message)
            }
        },
    };
    Some(condition(
        pool,
        IMAGES_PULLED,
        is_complete,
        reason,
        &message,
        now,
    ))
}

fn condition(
    pool: &Pool,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let mut old = pool.status.conditions.iter();
    let unchanged = old.find(|old| old.type_ == kind && old.status == status);
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message[..end].to_owned(),
        observed_generation: Some(pool.generation),
        last_transition_time: unchanged.map_or(Time(now), |old| old.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use crds::pool::SandboxPoolSpec;

    use super::*;
    use crate::pools::image_pulls::Pulled;

    fn pool(replicas: u32, status: &SandboxPoolStatus) -> Pool {
        let spec = SandboxPoolSpec {
            replicas,
            ..SandboxPoolSpec::default()
        };
        Pool {
            status: status.clone(),
            ..Pool::new("p".into(), spec)
        }
    }

    fn seen(ready: usize, outdated: usize, problem: Option<&str>) -> Observation {
        Observation {
            plan: PoolPlan {
                desired: 3,
                ready,
                starting: 3 - ready,
                outdated,
                ..PoolPlan::default()
            },
            claimed: 2,
            problem: problem.map(str::to_owned),
            ..Observation::default()
        }
    }

    #[test]
    fn status_counts_pods_and_explains_missing_ones() {
        let nothing = SandboxPoolStatus::default();
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let first = status(&pool(3, &nothing), "p", &seen(1, 1, None), early).unwrap();
        insta::assert_json_snapshot!("starting", first);
        let unchanged = status(&pool(3, &first), "p", &seen(1, 1, None), late);
        assert_eq!(unchanged, None);
        let blocked = seen(1, 0, Some("no such image"));
        let blocked = status(&pool(3, &first), "p", &blocked, late).unwrap();
        let [ready] = &blocked.conditions[..] else {
            panic!("one condition");
        };
        assert_eq!(
            (&*ready.reason, &*ready.message),
            ("Blocked", "no such image")
        );
        assert_eq!(ready.last_transition_time, Time(early));
        let complete = status(&pool(3, &blocked), "p", &seen(3, 0, None), late).unwrap();
        assert_eq!(complete.conditions[0].status, "True");
        assert_eq!(complete.conditions[0].last_transition_time, Time(late));
    }

    #[test]
    fn template_without_warm_pods_gets_no_status() {
        let nothing = SandboxPoolStatus::default();
        let idle = Observation::default();
        assert_eq!(status(&pool(0, &nothing), "p", &idle, Timestamp::MAX), None);
        let warm = status(&pool(3, &nothing), "p", &seen(3, 0, None), Timestamp::MAX).unwrap();
        let emptied = status(&pool(0, &warm), "p", &idle, Timestamp::MAX).unwrap();
        assert_eq!((emptied.ready, emptied.selector), (0, None));
        assert!(emptied.conditions.is_empty());
    }

    #[test]
    fn images_pulled_counts_nodes_and_stays_while_unknown() {
        let mut pool = pool(0, &SandboxPoolStatus::default());
        pool.spec.image_pulls = ImagePulls::EveryNode;
        let nodes = |nodes, pulled| Some(Ok(Pulled { nodes, pulled }));
        for (image_pulls, expected) in [
            (nodes(None, 0), ("Pulling", "the nodes are not counted yet")),
            (
                nodes(Some(3), 2),
                ("Pulling", "2 of 3 nodes have the images"),
            ),
            (Some(Err("forbidden".into())), ("Failed", "forbidden")),
            (
                nodes(Some(3), 3),
                ("Complete", "3 of 3 nodes have the images"),
            ),
            (None, ("Complete", "3 of 3 nodes have the images")),
        ] {
            let observation = Observation {
                image_pulls,
                ..Observation::default()
            };
            if let Some(status) = status(&pool, "p", &observation, Timestamp::MAX) {
                pool.status = status;
            }
            let found = &pool.status.conditions[0];
            assert_eq!((&*found.reason, &*found.message), expected);
            assert_eq!(found.status == "True", found.reason == "Complete");
        }
        pool.spec.image_pulls = ImagePulls::OnDemand;
        let ended = status(&pool, "p", &Observation::default(), Timestamp::MAX);
        assert_eq!(ended.unwrap().conditions, []);
    }
}
