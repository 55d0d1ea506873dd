//! Status of pools: the condition `Warm` reports that `replicas` and `rollout` have no effect yet.
//! Pools without these fields get no status write.

use std::collections::HashMap;
use std::time::Duration;

use crds::SandboxPool;
use crds::pool::{SandboxPoolSpec, SandboxPoolStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::{Pool, PoolIndex};
use crds::names;
use shared::clock::Clock;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};

/// Condition of a pool with `replicas` or `rollout`.
const WARM: &str = "Warm";
const REASON: &str = "NotSupported";
const MESSAGE: &str = "warm pools are not implemented: replicas and rollout have no effect, \
    the pool is a template";
/// Delay after a status write that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Errors of status writes by pool.
type Failures = HashMap<Key, String>;

/// Writer of the statuses of pools.
#[derive(Clone, Copy)]
pub(crate) struct StatusWriter<'a> {
    pub(crate) pools: &'a PoolIndex,
    pub(crate) client: &'a Client,
    pub(crate) clock: Clock,
}

impl StatusWriter<'_> {
    /// Writes statuses until it is cancelled. Only the leader runs it.
    pub(crate) async fn run(self) {
        let mut failures = Failures::new();
        loop {
            failures = self.write_pending(&failures).await;
            tokio::select! {
                () = self.pools.status_dirty.notified() => {}
                () = sleep(RETRY_INTERVAL), if !failures.is_empty() => {}
            }
        }
    }

    /// Writes all pending statuses. An error is logged when it first occurs or changes.
    async fn write_pending(self, before: &Failures) -> Failures {
        let mut failures = Failures::new();
        for (key, uid, status) in self.pools.pending_statuses(self.clock.now()) {
            if let Err(error) = self.write(&key, &uid, &status).await {
                let error = error.to_string();
                if before.get(&key) != Some(&error) {
                    tracing::warn!(pool = %key, %error, "cannot write the status of a pool");
                }
                failures.insert(key, error);
            }
        }
        failures
    }

    async fn write(
        self,
        key: &Key,
        uid: &str,
        status: &SandboxPoolStatus,
    ) -> Result<(), CallError> {
        let api = Api::<SandboxPool>::namespaced(self.client.clone(), &key.namespace);
        // The uid protects another pool that has taken the name meanwhile.
        let mut patch = json!({"metadata": {"uid": uid}, "status": status});
        // An empty list is not serialized, and a field that a patch lacks stays.
        patch["status"]["conditions"] = json!(status.conditions);
        patch["status"]["selector"] = json!(status.selector);
        let patch = Patch::Merge(patch);
        let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
        match with_timeout(api.patch_status(&key.name, &params, &patch)).await {
            Ok(written) => {
                self.pools.apply_written(key, written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// New status of a pool; `None` if its status is up to date.
pub(super) fn status(pool: &Pool, name: &str, now: Timestamp) -> Option<SandboxPoolStatus> {
    let old = pool.status.conditions.iter().find(|c| c.type_ == WARM);
    let wants_warm = wants_warm_pods(&pool.spec);
    let current = pool.status.observed_generation == Some(pool.generation);
    let selector = wants_warm.then(|| format!("{}={name}", names::POOL_LABEL));
    let is_reported = wants_warm == old.is_some() && selector == pool.status.selector;
    if is_reported && (current || !wants_warm) {
        return None;
    }
    let since = old.map_or(Time(now), |old| old.last_transition_time.clone());
    let condition = Condition {
        type_: WARM.into(),
        status: "False".into(),
        reason: REASON.into(),
        message: MESSAGE.into(),
        observed_generation: Some(pool.generation),
        last_transition_time: since,
    };
    Some(SandboxPoolStatus {
        selector,
        revision: Some(pool.revision.clone()),
        observed_generation: Some(pool.generation),
        conditions: wants_warm.then_some(condition).into_iter().collect(),
        ..SandboxPoolStatus::default()
    })
}

fn wants_warm_pods(spec: &SandboxPoolSpec) -> bool {
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
            ..Pool::new("p".into(), spec)
        }
    }

    #[test]
    fn warm_condition_is_written_once_for_pools_with_replicas() {
        let nothing = SandboxPoolStatus::default();
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert_eq!(status(&pool(0, 1, &nothing), "p", early), None);
        let told = status(&pool(3, 1, &nothing), "p", early).unwrap();
        let [condition] = &told.conditions[..] else {
            panic!("one condition");
        };
        assert_eq!((&*condition.type_, &*condition.status), ("Warm", "False"));
        assert_eq!(told.selector.as_deref(), Some("openhands.dev/pool=p"));
        assert_eq!(status(&pool(3, 1, &told), "p", late), None);
        let again = status(&pool(4, 2, &told), "p", late).unwrap();
        assert_eq!(again.observed_generation, Some(2));
        let since = &again.conditions[0].last_transition_time;
        assert_eq!(since, &condition.last_transition_time);
        let template = status(&pool(0, 3, &again), "p", late).unwrap();
        assert_eq!(
            (&template.conditions[..], template.selector.as_ref()),
            (&[][..], None)
        );
        assert_eq!(status(&pool(0, 4, &template), "p", late), None);
    }
}
