//! A node without processes: Pods run as soon as they are created, end as soon as they are
//! deleted, and have the faults in between that a test scripts.
//!
//! It sees every change of every Pod immediately, so it also counts them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use operator::clock::Clock;
use operator::controller::facts::EXECUTOR_ANNOTATION;
use operator::kubernetes::slim::SlimPod;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::chaos::{Chaos, InjectedFault, PodFailure, PodScript};
use super::{NAMESPACE, ScriptedSupervisors};

/// Plays the node and all its Pods.
#[allow(missing_debug_implementations, reason = "kube's client has none")]
pub struct ScriptedNode {
    client: Client,
    pods: Api<SlimPod>,
    clock: Clock,
    supervisors: Arc<ScriptedSupervisors>,
    state: Mutex<NodeState>,
}

#[derive(Default)]
struct NodeState {
    addresses: u32,
    /// Script of the next Pod of a name; a Pod without one runs.
    fates: HashMap<String, PodScript>,
    /// Pods that run, by name.
    running: HashMap<String, RunningPod>,
    /// Pods that exist, by the uid of their owner.
    existing: HashMap<String, BTreeSet<String>>,
    /// Sandboxes that had two Pods at once, and Pods that had two sandboxes.
    duplicates: Vec<String>,
    /// Warm Pods that exist, by the uid of their pool.
    warm: HashMap<String, BTreeSet<String>>,
    /// Sandboxes of claimed Pods.
    claims: HashMap<String, String>,
    created: Vec<String>,
    uids: BTreeSet<String>,
    chaos: Option<Chaos>,
}

/// The scheduler's words for a claim without a volume.
const UNBOUND: &str = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims";

/// Time after which the scheduler looks again for a PVC.
const VOLUME_INTERVAL: Duration = Duration::from_millis(20);

/// One Pod that runs.
#[derive(Debug, Clone)]
struct RunningPod {
    uid: String,
    sandbox_uid: String,
    ip: String,
    restarts: u32,
    /// Its node is gone, so no kubelet ends it.
    lost: bool,
}

impl NodeState {
    fn record_warm(&mut self, pool: &str, pod: &SlimPod, uid: &str, exists: bool) {
        let warm = self.warm.entry(pool.to_owned()).or_default();
        if !exists || pod.metadata.deletion_timestamp.is_some() {
            warm.remove(uid);
            self.running
                .retain(|_, running| exists || running.uid != uid);
            return;
        }
        warm.insert(uid.to_owned());
        if self.uids.insert(uid.to_owned()) {
            self.created.push(pod.name_any());
        }
    }
}

impl ScriptedNode {
    /// A node for Pods of the namespace of all tests.
    pub fn new(client: Client, clock: Clock, supervisors: Arc<ScriptedSupervisors>) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            client,
            clock,
            supervisors,
            state: Mutex::default(),
        }
    }

    /// Plays the node for ever.
    pub async fn run(self: Arc<Self>) {
        let mut events = std::pin::pin!(watcher(self.pods.clone(), Config::default()));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                    self.record_pod(&pod, true);
                    self.handle_pod(&pod).await;
                }
                Ok(Event::Delete(pod)) => self.record_pod(&pod, false),
                // A list follows, of all that there are.
                Ok(Event::Init) => self.state.lock().existing.clear(),
                Ok(Event::InitDone) | Err(_) => {}
            }
        }
    }

    /// Decides about the next Pods of a sandbox, or of a pool.
    pub fn script_next_pod(&self, name: &str, fate: PodScript) {
        self.state.lock().fates.insert(name.to_owned(), fate);
    }

    /// The command of a sandbox ends for this reason and is started again at once.
    pub async fn restart(&self, name: &str, why: &str) {
        let running = {
            let mut state = self.state.lock();
            let Some(running) = state.running.get_mut(name) else {
                return;
            };
            running.restarts += 1;
            running.clone()
        };
        let mut status = self.running_status(&running);
        status["containerStatuses"][0]["lastState"] =
            json!({"terminated": {"reason": why, "exitCode": 137}});
        self.say(name, &running.uid, &status).await;
    }

    /// The node reports the progress of the pull that a Pod waits for.
    pub async fn report_progress(&self, name: &str, progress: &str) {
        let waiting = json!({"reason": "ContainerCreating", "message": progress});
        let pod = self.pods.get_opt(name).await.ok().flatten();
        let uid = pod.and_then(|pod| pod.uid()).unwrap_or_default();
        self.hold(name, &uid, &waiting).await;
    }

    /// The Pod of a sandbox is evicted.
    pub async fn evict(&self, name: &str) {
        let status = json!({"phase": "Failed", "reason": "Evicted", "message": "out of memory"});
        self.say(name, &self.uid(name), &status).await;
    }

    /// Loses the node of a sandbox's Pod. The API says so, and no kubelet ends the Pod any more.
    pub async fn lose_node(&self, name: &str) {
        if let Some(running) = self.state.lock().running.get_mut(name) {
            running.lost = true;
        }
        let status = json!({"phase": "Unknown", "reason": "NodeLost"});
        self.say(name, &self.uid(name), &status).await;
    }

    /// The node of a sandbox's Pod can never hold the resources that it has asked for.
    pub async fn refuse_resize(&self, name: &str) {
        let condition = json!({"type": "PodResizePending", "status": "True",
            "reason": "Infeasible", "message": "Node didn't have enough capacity"});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}, condition]});
        self.say(name, &self.uid(name), &status).await;
    }

    /// From now on something happens to this share of all new Pods.
    pub fn enable_chaos(&self, seed: u64, percent: u64) {
        self.state.lock().chaos = Some(Chaos::new(seed, percent));
    }

    /// No more accidents to new Pods. How many there were.
    pub fn disable_chaos(&self) -> usize {
        let chaos = self.state.lock().chaos.take();
        chaos.map_or(0, |chaos| chaos.accidents)
    }

    /// Ends every trouble that keeps a Pod from running.
    pub async fn heal_all(&self) {
        let names: Vec<_> = self.state.lock().fates.keys().cloned().collect();
        for name in names {
            self.heal(&name).await;
        }
    }

    /// Deletes the Pod of a sandbox as another client.
    pub async fn remove(&self, name: &str) {
        let _ = self.pods.delete(name, &DeleteParams::default()).await;
    }

    fn is_running(&self, name: &str, uid: &str) -> bool {
        let state = self.state.lock();
        state.running.get(name).is_some_and(|r| r.uid == uid)
    }

    /// Names of all Pods that were ever created, in order.
    pub fn created(&self) -> Vec<String> {
        self.state.lock().created.clone()
    }

    /// Uid of the Sandbox of the running Pod that has this address.
    pub fn sandbox_at(&self, ip: &str) -> Option<String> {
        let state = self.state.lock();
        let mut running = state.running.values();
        let pod = running.find(|r| r.ip == ip && !r.lost)?;
        Some(pod.sandbox_uid.clone())
    }

    /// The command of a sandbox crashes; once started again, it is not ready before [`Self::heal`].
    pub async fn crash(&self, name: &str) {
        self.close(name);
        self.restart(name, "Error").await;
    }

    /// The server of a sandbox answers no more.
    pub fn close(&self, name: &str) {
        if let Some(running) = self.state.lock().running.get(name) {
            self.supervisors.set_can_become_ready(&running.ip, false);
        }
    }

    /// Fails if a sandbox ever had two Pods at once, or a Pod two sandboxes.
    pub fn assert_single_pod(&self) {
        let doubles = &self.state.lock().duplicates;
        assert!(doubles.is_empty(), "two Pods at once: {doubles:?}");
    }

    fn record_pod(&self, pod: &SlimPod, exists: bool) {
        let (Some(owner), Some(uid)) = (pod.owner_references().first(), pod.uid()) else {
            return;
        };
        let mut state = self.state.lock();
        if owner.kind == "SandboxPool" {
            return state.record_warm(&owner.uid, pod, &uid, exists);
        }
        let was_warm = state.warm.values_mut().any(|warm| warm.remove(&uid));
        if was_warm {
            state.claims.insert(uid.clone(), owner.uid.clone());
        }
        if state
            .claims
            .get(&uid)
            .is_some_and(|sandbox| *sandbox != owner.uid)
        {
            state.duplicates.push(pod.name_any());
        }
        if let Some(running) = state.running.get_mut(&pod.name_any()) {
            // It may have been claimed.
            running.sandbox_uid.clone_from(&owner.uid);
        }
        let mine = state.existing.entry(owner.uid.clone()).or_default();
        if !exists {
            mine.remove(&uid);
            let gone = |running: &RunningPod| running.uid == uid;
            if state.running.get(&pod.name_any()).is_some_and(gone) {
                state.running.remove(&pod.name_any());
            }
        } else if mine.insert(uid.clone()) {
            let double = mine.len() > 1;
            if double {
                state.duplicates.push(pod.name_any());
            }
            if state.uids.insert(uid) {
                state.created.push(pod.name_any());
            }
        }
    }

    async fn handle_pod(self: &Arc<Self>, pod: &SlimPod) {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            self.end(pod, &name).await;
        } else if pod.spec.node_name.is_none() && pod.status.conditions.is_empty() {
            self.maybe_inject_fault(pod, &name);
            match self.missing_claim(pod, &name).await {
                Some(claim) => {
                    tokio::spawn(self.clone().start_with_claim(pod.clone(), claim));
                }
                None => self.start(pod, &name).await,
            }
        }
    }

    /// PVC of a warm Pod, which is created after it, unless it exists.
    async fn missing_claim(&self, pod: &SlimPod, name: &str) -> Option<String> {
        pod.owner_references()
            .iter()
            .find(|o| o.kind == "SandboxPool")?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let spec = pods.get_opt(name).await.ok()??.spec?;
        let mut volumes = spec.volumes.unwrap_or_default().into_iter();
        let claim = volumes.find_map(|v| v.persistent_volume_claim)?;
        (!self.has_claim(&claim.claim_name).await).then_some(claim.claim_name)
    }

    async fn has_claim(&self, name: &str) -> bool {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), NAMESPACE);
        matches!(claims.get_metadata_opt(name).await, Ok(Some(_)))
    }

    /// Starts a Pod when its PVC exists. Meanwhile the scheduler says what it waits for.
    async fn start_with_claim(self: Arc<Self>, pod: SlimPod, claim: String) {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let why = format!("0/1 nodes are available: persistentvolumeclaim \"{claim}\" not found.");
        sleep(VOLUME_INTERVAL).await;
        let mut is_reported = false;
        while !self.has_claim(&claim).await {
            let found = self.pods.get_opt(&name).await.ok().flatten();
            if found.and_then(|pod| pod.uid()).as_ref() != Some(&uid) {
                return;
            }
            if !is_reported {
                self.leave(&name, &uid, &why).await;
            }
            is_reported = true;
            sleep(VOLUME_INTERVAL).await;
        }
        self.start(&pod, &name).await;
    }

    /// Decides what will happen to a new Pod, if accidents happen.
    fn maybe_inject_fault(self: &Arc<Self>, pod: &SlimPod, name: &str) {
        let mut state = self.state.lock();
        let Some(chaos) = &mut state.chaos else {
            return;
        };
        let Some(accident) = chaos.next_fault() else {
            state.fates.remove(name);
            return;
        };
        if let InjectedFault::Start(fate, _) = accident {
            state.fates.insert(name.to_owned(), fate);
        }
        drop(state);
        let uid = pod.uid().unwrap_or_default();
        tokio::spawn(self.clone().inject(name.to_owned(), uid, accident));
    }

    async fn end(&self, pod: &SlimPod, name: &str) {
        if self.state.lock().running.get(name).is_some_and(|r| r.lost) {
            return;
        }
        let now = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default().grace_period(0)
        };
        // A failure here means that the Pod is gone or replaced.
        let _ = self.pods.delete(name, &now).await;
    }

    /// Removes the obstacle that keeps the Pod of a sandbox from running.
    pub async fn heal(&self, name: &str) {
        self.script_next_pod(name, PodScript::Runs);
        let running = self.state.lock().running.get(name).cloned();
        if let Some(running) = running {
            self.supervisors.set_can_become_ready(&running.ip, true);
        } else if let Ok(Some(pod)) = self.pods.get_opt(name).await {
            self.start(&pod, name).await;
        }
    }

    fn uid(&self, name: &str) -> String {
        let state = self.state.lock();
        state
            .running
            .get(name)
            .map(|r| r.uid.clone())
            .unwrap_or_default()
    }

    async fn start(&self, pod: &SlimPod, name: &str) {
        let uid = pod.uid().unwrap_or_default();
        let labels = pod.labels();
        let is_warm = !labels.contains_key(crds::names::SANDBOX_LABEL);
        let pool = labels.get(crds::names::POOL_LABEL).filter(|_| is_warm);
        let mut names = std::iter::once(name).chain(pool.map(String::as_str));
        let fate = {
            let fates = &self.state.lock().fates;
            names.find_map(|name| fates.get(name)).copied()
        };
        match fate.unwrap_or_default() {
            PodScript::Unschedulable => self.leave(name, &uid, "0/1 nodes").await,
            PodScript::LacksVolume => self.leave(name, &uid, UNBOUND).await,
            PodScript::Vanishes => {
                let now = DeleteParams::default().grace_period(0);
                let _ = self.pods.delete(name, &now).await;
            }
            PodScript::Pulls => {
                self.hold(name, &uid, &json!({"reason": "ContainerCreating"}))
                    .await;
            }
            PodScript::CannotPull => {
                self.hold(name, &uid, &json!({"reason": "ErrImagePull"}))
                    .await;
            }
            PodScript::LacksSecret => {
                let waiting = json!({"reason": "CreateContainerConfigError",
                    "message": "secret \"keys\" not found"});
                self.hold(name, &uid, &waiting).await;
            }
            PodScript::CannotMount if pod.annotation(EXECUTOR_ANNOTATION).is_some() => {
                let waiting = json!({"reason": "CreateContainerError",
                    "message": "failed to mkdir \"\": mkdir : no such file or directory"});
                self.hold(name, &uid, &waiting).await;
            }
            PodScript::Succeeds => self.say(name, &uid, &json!({"phase": "Succeeded"})).await,
            PodScript::Fails => self.say(name, &uid, &json!({"phase": "Failed"})).await,
            fate => {
                let running = self.admit(pod, name);
                self.supervisors
                    .set_can_become_ready(&running.ip, fate != PodScript::NeverReady);
                self.bind(name).await;
                self.say(name, &uid, &self.running_status(&running)).await;
            }
        }
    }

    /// No node takes a Pod.
    async fn leave(&self, name: &str, uid: &str, why: &str) {
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": why});
        let status = json!({"phase": "Pending", "conditions": [condition]});
        self.say(name, uid, &status).await;
    }

    /// A node has taken a Pod and cannot start it.
    async fn hold(&self, name: &str, uid: &str, waiting: &Value) {
        self.bind(name).await;
        let own = container(&json!({"waiting": waiting}));
        let status = json!({"phase": "Pending", "containerStatuses": [own]});
        self.say(name, uid, &status).await;
    }

    /// Notes a Pod as running and gives it an address of its own.
    fn admit(&self, pod: &SlimPod, name: &str) -> RunningPod {
        let owner = pod.owner_references().first();
        let mut state = self.state.lock();
        state.addresses += 1;
        let number = state.addresses;
        let running = RunningPod {
            uid: pod.uid().unwrap_or_default(),
            sandbox_uid: owner.map(|o| o.uid.clone()).unwrap_or_default(),
            ip: format!("127.1.{}.{}", number >> 8 & 255, number & 255),
            restarts: 0,
            lost: false,
        };
        state.running.insert(name.to_owned(), running.clone());
        running
    }

    fn running_status(&self, running: &RunningPod) -> Value {
        let since = Time(self.clock.now());
        let mut own = container(&json!({"running": {"startedAt": since}}));
        own["ready"] = json!(true);
        own["restartCount"] = json!(running.restarts);
        json!({
            "phase": "Running",
            "podIP": running.ip,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [own],
        })
    }

    async fn bind(&self, name: &str) {
        let bind = json!({"spec": {"nodeName": "scripted"}});
        let params = PatchParams::default();
        let _ = self.pods.patch(name, &params, &Patch::Merge(bind)).await;
    }

    async fn say(&self, name: &str, uid: &str, status: &Value) {
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": status}));
        let params = PatchParams::default();
        let _ = self.pods.patch_status(name, &params, &patch).await;
    }
}

impl ScriptedNode {
    /// Injects a fault into the Pod with this uid, when its time has come.
    async fn inject(self: Arc<Self>, name: String, uid: String, fault: InjectedFault) {
        match fault {
            InjectedFault::Start(_, None) => {}
            InjectedFault::Start(_, Some(after)) => {
                sleep(after).await;
                self.heal(&name).await;
            }
            InjectedFault::Later(failure, after) => {
                sleep(after).await;
                if self.is_running(&name, &uid) {
                    self.inject_now(&name, failure).await;
                }
            }
        }
    }

    async fn inject_now(&self, name: &str, failure: PodFailure) {
        match failure {
            PodFailure::Crashes => self.restart(name, "Error").await,
            PodFailure::OutOfMemory => self.restart(name, "OOMKilled").await,
            PodFailure::Evicted => self.evict(name).await,
            PodFailure::NodeLost => self.lose_node(name).await,
            PodFailure::Deleted => self.remove(name).await,
        }
    }
}

fn container(state: &Value) -> Value {
    json!({"name": "sandbox", "ready": false, "restartCount": 0, "image": "i", "imageID": "i",
        "state": state})
}
