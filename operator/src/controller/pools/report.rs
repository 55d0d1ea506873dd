//! What is said of pools: that no Pods are kept ready yet, so that `replicas` and `rollout` have no
//! effect. Only pools that ask for it are written to, and only when there is something new to say.

use std::collections::HashMap;
use std::time::Duration;

use crds::SandboxPool;
use crds::pool::{SandboxPoolSpec, SandboxPoolStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::Pool;
use crate::controller::reconcile::Context;
use crate::index::Key;
use crate::kubernetes::client::{CallError, bounded};
use crds::names;

/// Condition of a pool that asks for Pods that wait ready.
const WARM: &str = "Warm";
const REASON: &str = "NotSupported";
const MESSAGE: &str = "no Pods are kept ready yet: replicas and rollout have no effect, \
    the pool is a template";
/// Pause after a report that could not be written.
const PAUSE: Duration = Duration::from_secs(30);

/// Why the statuses of pools could not be written.
type Failures = HashMap<Key, String>;

/// Reports for ever. To be run by the leader alone.
pub(in crate::controller) async fn run(context: &Context) {
    let mut failures = Failures::new();
    loop {
        failures = report(context, &failures).await;
        tokio::select! {
            () = context.pools.changed.notified() => {}
            () = sleep(PAUSE), if !failures.is_empty() => {}
        }
    }
}

/// Writes what is due. A failure that has not changed is not logged again.
async fn report(context: &Context, before: &Failures) -> Failures {
    let mut failures = Failures::new();
    for (key, uid, status) in context.pools.reports(context.clock.now()) {
        if let Err(error) = write(context, &key, &uid, &status).await {
            let error = error.to_string();
            if before.get(&key) != Some(&error) {
                tracing::warn!(pool = %key, %error, "the status of a pool was not written");
            }
            failures.insert(key, error);
        }
    }
    failures
}

async fn write(
    context: &Context,
    key: &Key,
    uid: &str,
    status: &SandboxPoolStatus,
) -> Result<(), CallError> {
    let api = Api::<SandboxPool>::namespaced(context.client.clone(), &key.namespace);
    // The uid keeps it from a pool that took the name meanwhile.
    let mut patch = json!({"metadata": {"uid": uid}, "status": status});
    // An empty list is left out of a status, and what is left out of a patch stays.
    patch["status"]["conditions"] = json!(status.conditions);
    let patch = Patch::Merge(patch);
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER.into()),
        ..PatchParams::default()
    };
    match bounded(api.patch_status(&key.name, &params, &patch)).await {
        Ok(written) => {
            context.pools.written(key, written);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The status that a pool should have; `None` if that is what it has.
pub(super) fn status(pool: &Pool, now: Timestamp) -> Option<SandboxPoolStatus> {
    let said = pool.status.conditions.iter().find(|c| c.type_ == WARM);
    let asks = asks_for_pods(&pool.spec);
    let current = pool.status.observed_generation == Some(pool.generation);
    if asks == said.is_some() && (current || !asks) {
        return None;
    }
    let since = said.map_or(Time(now), |said| said.last_transition_time.clone());
    let condition = Condition {
        type_: WARM.into(),
        status: "False".into(),
        reason: REASON.into(),
        message: MESSAGE.into(),
        observed_generation: Some(pool.generation),
        last_transition_time: since,
    };
    Some(SandboxPoolStatus {
        revision: Some(pool.revision.clone()),
        observed_generation: Some(pool.generation),
        conditions: asks.then_some(condition).into_iter().collect(),
        ..SandboxPoolStatus::default()
    })
}

fn asks_for_pods(spec: &SandboxPoolSpec) -> bool {
    spec.replicas > 0 || spec.rollout.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(replicas: u32, generation: i64, status: &SandboxPoolStatus) -> Pool {
        let spec = SandboxPoolSpec {
            replicas,
            ..SandboxPoolSpec::default()
        };
        Pool {
            generation,
            status: status.clone(),
            ..Pool::new(spec)
        }
    }

    #[test]
    fn a_pool_that_asks_for_pods_is_told_once_and_a_template_never() {
        let nothing = SandboxPoolStatus::default();
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert_eq!(status(&pool(0, 1, &nothing), early), None);
        let told = status(&pool(3, 1, &nothing), early).unwrap();
        let [condition] = &told.conditions[..] else {
            panic!("one condition");
        };
        assert_eq!((&*condition.type_, &*condition.status), ("Warm", "False"));
        assert_eq!(status(&pool(3, 1, &told), late), None);
        let again = status(&pool(4, 2, &told), late).unwrap();
        assert_eq!(again.observed_generation, Some(2));
        let since = &again.conditions[0].last_transition_time;
        assert_eq!(since, &condition.last_transition_time);
        let template = status(&pool(0, 3, &again), late).unwrap();
        assert_eq!(template.conditions, []);
        assert_eq!(status(&pool(0, 4, &template), late), None);
    }
}
