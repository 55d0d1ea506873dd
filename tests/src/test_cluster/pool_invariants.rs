//! Invariants of warm pools, checked at every change that the API server shows
//! (`docs/architecture.md`, invariants 1 to 3 and 8).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crds::int_or_string::IntOrString;
use crds::pool::{SandboxPoolSpec, SandboxPoolStatus};
use crds::sandbox::Phase;
use crds::{Sandbox, SandboxPool, names};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt};
use operator::kubernetes::slim::SlimPod;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::{ScriptedNode, ScriptedSupervisors, TestCluster};

/// Checks that run since [`TestCluster::watch_invariants`].
#[allow(missing_debug_implementations, reason = "kube's client has none")]
pub struct PoolInvariants {
    node: Arc<ScriptedNode>,
    supervisors: Arc<ScriptedSupervisors>,
    seen: Arc<Mutex<SeenObjects>>,
}

#[derive(Default)]
struct SeenObjects {
    /// Warm Pods that are not terminating, by the uid of their pool.
    warm: HashMap<String, BTreeSet<String>>,
    /// Most warm Pods of a pool, by its uid, and by generation from the observed one on.
    limits: HashMap<String, BTreeMap<i64, usize>>,
    /// Uids of the Sandboxes of Pods, by the uid of the Pod.
    sandboxes: HashMap<String, String>,
    /// Generation and observed generation of objects, by uid.
    generations: HashMap<String, (i64, i64)>,
    violations: Vec<String>,
}

impl TestCluster {
    /// Checks every change from now on.
    pub fn watch_invariants(&self) -> PoolInvariants {
        let seen = Arc::<Mutex<SeenObjects>>::default();
        let (pools, sandboxes, pods) = (seen.clone(), seen.clone(), seen.clone());
        let supervisors = self.supervisors.clone();
        follow(self.api_of(), move |pool, exists| {
            pools.lock().record_pool(pool, exists);
        });
        follow(self.api_of(), move |sandbox, exists| {
            sandboxes
                .lock()
                .record_sandbox(sandbox, exists, &supervisors);
        });
        follow(self.api_of(), move |pod, exists| {
            pods.lock().record_pod(pod, exists);
        });
        PoolInvariants {
            node: self.node.clone(),
            supervisors: self.supervisors.clone(),
            seen,
        }
    }

    /// Status of the pool `p`.
    pub async fn pool_status(&self) -> SandboxPoolStatus {
        let pool = self.api_of::<SandboxPool>().get("p").await;
        pool.expect("a pool").status.unwrap_or_default()
    }

    /// Waits until the status of the pool is as wanted, at most for `limit` of virtual time.
    pub async fn wait_for_pool(
        &self,
        limit: Duration,
        wanted: impl Fn(&SandboxPoolStatus) -> bool,
    ) -> Duration {
        let begin = Instant::now();
        loop {
            let status = self.pool_status().await;
            if wanted(&status) {
                return begin.elapsed();
            }
            assert!(begin.elapsed() < limit, "{status:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Names of the warm Pods of the pool `p`.
    pub async fn warm_pods(&self) -> Vec<String> {
        let selector = ListParams::default().labels(&names::warm_selector("p"));
        let listed = self.api_of::<Pod>().list(&selector).await.expect("a list");
        listed.items.iter().map(ResourceExt::name_any).collect()
    }

    /// Fails unless each of the sandboxes runs on one Pod, the pool has this number of Pods, and
    /// each PVC belongs to the object that decides about its life.
    pub async fn assert_nothing_leaked(&self, sandboxes: &[String], replicas: usize) {
        let warm = self.warm_pods().await;
        assert_eq!(warm.len(), replicas, "{warm:?}");
        let mut pods: BTreeSet<_> = warm.iter().cloned().collect();
        let mut claims = BTreeMap::new();
        for name in sandboxes {
            let status = self.status(name).await;
            assert_eq!(status.phase, Phase::Running, "{name}: {status:?}");
            pods.extend(status.pod_name);
            claims.extend(status.workspace_claim.map(|claim| (claim, name.clone())));
        }
        assert_eq!(pods.len(), sandboxes.len() + replicas, "{pods:?}");
        let found = self.names::<Pod>().await;
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), pods);
        let listed = self.api_of::<PersistentVolumeClaim>();
        let listed = listed.list(&ListParams::default()).await.expect("a list");
        let owners = listed.items.iter().map(|claim| {
            let owner = claim.owner_references().first();
            (
                claim.name_any(),
                owner.map_or_else(String::new, |o| o.name.clone()),
            )
        });
        if !claims.is_empty() {
            let of_warm = warm
                .into_iter()
                .map(|pod| (names::workspace_claim(&pod), pod));
            claims.extend(of_warm);
        }
        assert_eq!(owners.collect::<BTreeMap<_, _>>(), claims);
    }
}

impl PoolInvariants {
    /// Fails if an invariant was ever violated.
    pub fn assert_held(&self) {
        self.node.assert_single_pod();
        let mut seen = self.seen.lock();
        for (pod, sandbox) in self.supervisors.inits() {
            if seen.sandboxes.get(&pod) != Some(&sandbox) {
                let message = format!("Pod {pod} was initialized for {sandbox}, not its owner");
                seen.violations.push(message);
            }
        }
        assert!(seen.violations.is_empty(), "{:#?}", seen.violations);
    }
}

impl SeenObjects {
    fn record_pod(&mut self, pod: &SlimPod, exists: bool) {
        let (Some(owner), Some(uid)) = (pod.owner_references().first(), pod.uid()) else {
            return;
        };
        if owner.kind != "SandboxPool" {
            self.warm.values_mut().for_each(|warm| {
                warm.remove(&uid);
            });
            let before = self.sandboxes.insert(uid, owner.uid.clone());
            if before.is_some_and(|before| before != owner.uid) {
                self.report(&pod.name_any(), "has a second sandbox");
            }
            return;
        }
        if self.sandboxes.contains_key(&uid) {
            self.report(&pod.name_any(), "is warm again after a claim");
        }
        let warm = self.warm.entry(owner.uid.clone()).or_default();
        if !exists || pod.metadata.deletion_timestamp.is_some() {
            warm.remove(&uid);
        } else if warm.insert(uid) {
            let count = warm.len();
            let limits = self.limits.get(&owner.uid);
            let limit = limits.and_then(|limits| limits.values().max()).copied();
            if limit.is_some_and(|limit| count > limit) {
                let message = format!("is warm Pod {count} of at most {limit:?}");
                self.report(&pod.name_any(), &message);
            }
        }
    }

    fn record_pool(&mut self, pool: &SandboxPool, exists: bool) {
        let status = pool.status.clone().unwrap_or_default();
        let observed = status.observed_generation.unwrap_or_default();
        let (uid, generation) = self.record_generations(&pool.metadata, observed, exists);
        let limits = self.limits.entry(uid).or_default();
        limits.insert(generation, most_warm_pods(&pool.spec));
        *limits = limits.split_off(&observed);
    }

    fn record_sandbox(
        &mut self,
        sandbox: &Sandbox,
        exists: bool,
        supervisors: &ScriptedSupervisors,
    ) {
        let status = sandbox.status.clone().unwrap_or_default();
        let observed = status.observed_generation.unwrap_or_default();
        let (uid, _) = self.record_generations(&sandbox.metadata, observed, exists);
        let pod = status.pod_uid.unwrap_or_default();
        if status.phase == Phase::Running && !supervisors.has_reported_ready(&pod, &uid) {
            let message = format!("is ready, and the supervisor of Pod {pod:?} never said so");
            self.report(&sandbox.name_any(), &message);
        }
    }

    /// Returns uid and generation of the object.
    fn record_generations(
        &mut self,
        object: &ObjectMeta,
        observed: i64,
        exists: bool,
    ) -> (String, i64) {
        let uid = object.uid.clone().unwrap_or_default();
        let generation = object.generation.unwrap_or_default();
        let now = (generation, observed);
        let before = self.generations.insert(uid.clone(), now);
        let before = before.unwrap_or(now);
        if generation < before.0 || observed < before.1 || observed > generation {
            let message = format!("has generations {now:?} after {before:?}");
            self.report(object.name.as_deref().unwrap_or_default(), &message);
        }
        if !exists {
            self.generations.remove(&uid);
        }
        (uid, generation)
    }

    fn report(&mut self, name: &str, message: &str) {
        self.violations.push(format!("{name} {message}"));
    }
}

/// Warm Pods that a pool may have during a rollout (`docs/pools.md`).
fn most_warm_pods(spec: &SandboxPoolSpec) -> usize {
    let demand = spec.demand.map_or(0, |demand| demand.max_replicas);
    let size = usize::try_from(demand.max(spec.replicas)).unwrap_or(usize::MAX);
    let surge = spec.rollout.as_ref().and_then(|r| r.max_surge.as_ref());
    let percent = match surge {
        Some(IntOrString::Int(count)) => return size + usize::try_from(*count).unwrap_or(0),
        Some(IntOrString::String(text)) => text.trim_end_matches('%').parse().unwrap_or(0),
        None => 25,
    };
    size + (size * percent).div_ceil(100)
}

/// Reports every object and whether it exists, until the test ends.
fn follow<K>(api: Api<K>, record: impl Fn(&K, bool) + Send + 'static)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, Config::default()));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => record(&object, true),
                Ok(Event::Delete(object)) => record(&object, false),
                Ok(Event::Init | Event::InitDone) | Err(_) => {}
            }
        }
    });
}
