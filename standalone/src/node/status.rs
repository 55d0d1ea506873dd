//! Facts about a Pod, which its containers change, and their translation to `status`: a pure
//! function that has Kubernetes' wording in one place.

mod conditions;

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::capacity::Resources;

#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Init containers and then the others. What follows from their state is added to the status.
    pub containers: Vec<ContainerStatus>,
    /// Number of init containers.
    init: usize,
    pub address: Option<IpAddr>,
    pub host: Option<IpAddr>,
    started: Option<Timestamp>,
    /// Message of the scheduler if the Pod does not fit on this machine.
    pub unschedulable: Option<String>,
    /// Resources of containers that were changed while the Pod ran, by name.
    pub resized: HashMap<String, ResourceRequirements>,
    /// Message of the eviction.
    pub evicted: Option<String>,
    /// No container will be started again.
    pub is_finished: bool,
}

/// Reasons as reported by the kubelet.
pub(crate) mod reason {
    pub(crate) const CREATING: &str = "ContainerCreating";
    pub(crate) const INITIALIZING: &str = "PodInitializing";
    pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";
    pub(crate) const COMPLETED: &str = "Completed";
    pub(crate) const ERROR: &str = "Error";
    pub(crate) const OOM_KILLED: &str = "OOMKilled";
    /// Of the Pod.
    pub(crate) const EVICTED: &str = "Evicted";
    /// The node was down when the container terminated.
    pub(crate) const UNKNOWN: &str = "ContainerStatusUnknown";
}

/// Facts with change notification: container runners update them, the status writer reports them.
#[derive(Debug)]
pub(crate) struct PodState {
    facts: Mutex<Facts>,
    pub changed: Notify,
}

impl PodState {
    /// Initial state of a Pod. Restart counts continue from its status.
    pub(crate) fn new(pod: &Pod, machine: Resources) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let is_bound = spec.node_name.is_some();
        let unschedulable = machine.rejection(&spec).filter(|_| !is_bound);
        let init = spec.init_containers.unwrap_or_default();
        let waiting = if init.is_empty() {
            reason::CREATING
        } else {
            reason::INITIALIZING
        };
        let mut statuses = status.container_statuses.unwrap_or_default();
        statuses.extend(status.init_container_statuses.unwrap_or_default());
        let containers = init.iter().chain(&spec.containers).map(|container| {
            let old = statuses.iter().find(|old| old.name == container.name);
            initial_status(container, old, waiting)
        });
        let started = status.start_time.map_or_else(Timestamp::now, |time| time.0);
        let facts = Facts {
            containers: containers.collect(),
            init: init.len(),
            started: Some(started),
            unschedulable,
            ..Facts::default()
        };
        Self {
            facts: Mutex::new(facts),
            changed: Notify::new(),
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        let result = change(&mut self.facts.lock());
        self.changed.notify_one();
        result
    }

    /// Changes the status of container `number`.
    pub(crate) fn container<T>(
        &self,
        number: usize,
        change: impl FnOnce(&mut ContainerStatus) -> T,
    ) -> Option<T> {
        self.update(|facts| facts.containers.get_mut(number).map(change))
    }
}

fn initial_status(
    container: &Container,
    old: Option<&ContainerStatus>,
    reason: &str,
) -> ContainerStatus {
    let unseen = old.and_then(unseen_termination);
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image_id: image.clone(),
        image,
        state: Some(waiting(reason, String::new())),
        restart_count: old.map_or(0, |old| old.restart_count) + i32::from(unseen.is_some()),
        last_state: unseen.map(terminated).or_else(|| old?.last_state.clone()),
        ..ContainerStatus::default()
    }
}

/// Termination of a container started before the node restarted, unless it is counted already.
fn unseen_termination(status: &ContainerStatus) -> Option<ContainerStateTerminated> {
    let state = status.state.as_ref()?;
    let now = || Some(Time(Timestamp::now()));
    if let Some(running) = &state.running {
        return Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some(reason::UNKNOWN.to_owned()),
            message: Some("the node restarted while the container was running".to_owned()),
            started_at: running.started_at.clone().or_else(now),
            finished_at: now(),
            ..ContainerStateTerminated::default()
        });
    }
    let waiting = state.waiting.as_ref();
    let waiting = waiting.and_then(|waiting| waiting.reason.as_deref());
    if matches!(waiting, Some(reason::CREATING | reason::INITIALIZING)) {
        // The node restarted again before it could start the container.
        return None;
    }
    let last = status.last_state.as_ref()?.terminated.as_ref();
    let ended = state.terminated.as_ref().or(last)?;
    let reason = || exit_reason(ended.exit_code).to_owned();
    Some(ContainerStateTerminated {
        exit_code: ended.exit_code,
        reason: Some(ended.reason.clone().unwrap_or_else(reason)),
        started_at: ended.started_at.clone().or_else(now),
        finished_at: ended.finished_at.clone().or_else(now),
        ..ContainerStateTerminated::default()
    })
}

pub(crate) fn exit_reason(code: i32) -> &'static str {
    if code == 0 {
        reason::COMPLETED
    } else {
        reason::ERROR
    }
}

pub(crate) fn waiting(reason: &str, message: String) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: Some(message).filter(|message| !message.is_empty()),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// Running since now.
pub(crate) fn running() -> ContainerState {
    let running = ContainerStateRunning {
        started_at: Some(Time(Timestamp::now())),
    };
    ContainerState {
        running: Some(running),
        ..ContainerState::default()
    }
}

pub(crate) fn terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(end),
        ..ContainerState::default()
    }
}

pub(crate) fn termination(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn succeeded(container: &ContainerStatus) -> bool {
    termination(container).is_some_and(|end| end.exit_code == 0)
}

fn is_running(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

/// Runs, and its startup probe has passed.
fn has_started(container: &ContainerStatus) -> bool {
    is_running(container) && container.started != Some(false)
}

fn was_started(container: &ContainerStatus) -> bool {
    is_running(container) || termination(container).is_some() || container.last_state.is_some()
}

impl Facts {
    fn init(&self) -> &[ContainerStatus] {
        &self.containers[..self.init]
    }

    fn main(&self) -> &[ContainerStatus] {
        &self.containers[self.init..]
    }

    fn phase(&self) -> &'static str {
        let initialized = self.init().iter().all(succeeded);
        if !self.is_finished {
            let is_running = initialized && self.main().iter().any(was_started);
            return if is_running { "Running" } else { "Pending" };
        }
        if self.evicted.is_none() && initialized && self.main().iter().all(succeeded) {
            "Succeeded"
        } else {
            "Failed"
        }
    }

    /// Computes the status. `pod` provides conditions of others and the transition times of ours.
    pub(crate) fn to_status(&self, pod: &Pod, now: Timestamp) -> PodStatus {
        let old = pod.status.clone().unwrap_or_default();
        let address = self.address.map(|address| address.to_string());
        let host = self.host.map(|host| host.to_string());
        let is_scheduled = self.unschedulable.is_none();
        let evicted = self.evicted.as_ref().filter(|_| self.is_finished);
        PodStatus {
            phase: Some(self.phase().to_owned()),
            reason: evicted.map(|_| reason::EVICTED.to_owned()),
            message: evicted.cloned(),
            conditions: Some(conditions::conditions(self, &old, now)),
            pod_ips: Some(address.iter().cloned().map(|ip| PodIP { ip }).collect()),
            host_ips: Some(host.iter().cloned().map(|ip| HostIP { ip }).collect()),
            pod_ip: address,
            host_ip: host,
            start_time: self.started.map(Time),
            init_container_statuses: statuses(self.init(), succeeded).filter(|_| is_scheduled),
            container_statuses: statuses(self.main(), has_started).filter(|_| is_scheduled),
            qos_class: old.qos_class,
            ..PodStatus::default()
        }
    }
}

fn statuses(
    containers: &[ContainerStatus],
    is_ready: fn(&ContainerStatus) -> bool,
) -> Option<Vec<ContainerStatus>> {
    let statuses = containers.iter().map(|container| ContainerStatus {
        ready: is_ready(container),
        started: Some(has_started(container)),
        ..container.clone()
    });
    (!containers.is_empty()).then(|| statuses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended(exit_code: i32) -> ContainerState {
        terminated(ContainerStateTerminated {
            exit_code,
            ..ContainerStateTerminated::default()
        })
    }

    fn facts(init: &ContainerState, main: &ContainerState, is_finished: bool) -> Facts {
        let containers = [init, main].map(|state| ContainerStatus {
            state: Some(state.clone()),
            ..ContainerStatus::default()
        });
        Facts {
            containers: containers.into(),
            init: 1,
            is_finished,
            ..Facts::default()
        }
    }

    #[test]
    fn phase_follows_containers() {
        let waiting = waiting(reason::CREATING, String::new());
        for (init, main, is_finished, phase) in [
            (&waiting, &waiting, false, "Pending"),
            (&running(), &waiting, false, "Pending"),
            (&ended(0), &waiting, false, "Pending"),
            (&ended(0), &running(), false, "Running"),
            (&ended(0), &ended(1), false, "Running"),
            (&ended(0), &ended(1), true, "Failed"),
            (&ended(0), &ended(0), true, "Succeeded"),
            (&ended(1), &waiting, true, "Failed"),
        ] {
            let facts = facts(init, main, is_finished);
            assert_eq!(facts.phase(), phase, "{facts:?}");
        }
    }

    #[test]
    fn crash_loop_status_matches_cluster() {
        let crash_loop = waiting(reason::CRASH_LOOP, String::new());
        let mut facts = facts(&ended(0), &crash_loop, false);
        facts.containers[1].last_state = Some(ended(3));
        facts.containers[1].restart_count = 2;
        facts.address = Some("10.0.0.2".parse().unwrap());
        let status = facts.to_status(&Pod::default(), Timestamp::UNIX_EPOCH);
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["phase"], "Running");
        assert_eq!(json["podIPs"], json!([{"ip": "10.0.0.2"}]));
        let container = &json["containerStatuses"][0];
        let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(container["state"], state);
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(container["restartCount"], 2);
        assert_eq!(container["ready"], false);
        assert_eq!(json["initContainerStatuses"][0]["ready"], true);
    }

    #[test]
    fn unscheduled_pod_has_no_container_statuses() {
        let waiting = waiting(reason::INITIALIZING, String::new());
        let mut facts = facts(&waiting, &waiting, false);
        facts.unschedulable = Some("0/1 nodes are available".into());
        let status = facts.to_status(&Pod::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(status.container_statuses, None);
        assert_eq!(status.init_container_statuses, None);
    }

    #[test]
    fn running_container_counts_one_restart_after_node_restart() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 3,
                "state": {"running": {}},
            }]},
        }))
        .unwrap();
        let facts = PodState::new(&pod, Resources::of_machine()).facts();
        let [a, b] = &facts.containers[..] else {
            panic!("two containers")
        };
        assert_eq!((a.restart_count, b.restart_count), (4, 0));
        let last = a.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(last.reason.as_deref(), Some(reason::UNKNOWN));
        assert_eq!(b.last_state, None);

        // The node ends before it has started the container again.
        pod.status = Some(facts.to_status(&pod, Timestamp::UNIX_EPOCH));
        let again = PodState::new(&pod, Resources::of_machine()).facts();
        assert_eq!(again.containers[0].restart_count, 4);
        assert_eq!(again.containers[0].last_state, a.last_state);
    }
}
