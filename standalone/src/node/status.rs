//! Facts about a Pod and their translation to `status`, a pure function that checks Kubernetes'
//! wording in one place.

mod conditions;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Facts about a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub init: Vec<ContainerFacts>,
    pub main: Vec<ContainerFacts>,
    pub address: Option<IpAddr>,
    pub host: Option<IpAddr>,
    pub started: Option<Timestamp>,
    /// Message of the scheduler if the Pod does not fit on this machine.
    pub unschedulable: Option<String>,
    /// No container will be started again.
    pub is_finished: bool,
}

/// Facts about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerFacts {
    pub name: String,
    pub image: String,
    /// Id of the container run; empty before the first.
    pub id: String,
    pub state: ContainerRunState,
    pub last: Option<Termination>,
    pub restarts: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerRunState {
    Waiting {
        reason: &'static str,
        message: String,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Termination),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Termination {
    pub code: i32,
    pub reason: &'static str,
    pub message: String,
    pub started: Timestamp,
    pub finished: Timestamp,
}

/// Reasons as reported by the kubelet.
pub(crate) mod reason {
    pub(crate) const CREATING: &str = "ContainerCreating";
    pub(crate) const INITIALIZING: &str = "PodInitializing";
    pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";
    pub(crate) const COMPLETED: &str = "Completed";
    pub(crate) const ERROR: &str = "Error";
    pub(crate) const OOM_KILLED: &str = "OOMKilled";
    /// The node was down when the container terminated.
    pub(crate) const UNKNOWN: &str = "ContainerStatusUnknown";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

impl ContainerFacts {
    fn succeeded(&self) -> bool {
        matches!(&self.state, ContainerRunState::Terminated(end) if end.code == 0)
    }

    fn is_running(&self) -> bool {
        matches!(self.state, ContainerRunState::Running { .. })
    }

    fn was_started(&self) -> bool {
        !matches!(self.state, ContainerRunState::Waiting { .. }) || self.last.is_some()
    }

    fn to_status(&self, init: bool) -> ContainerStatus {
        let running = self.is_running();
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: self.image.clone(),
            container_id: (!self.id.is_empty()).then(|| format!("process://{}", self.id)),
            ready: if init { self.succeeded() } else { running },
            started: Some(running),
            restart_count: self.restarts,
            state: Some(self.state.to_status(&self.id)),
            last_state: self
                .last
                .as_ref()
                .map(|end| ContainerRunState::Terminated(end.clone()).to_status("")),
            ..ContainerStatus::default()
        }
    }
}

impl ContainerRunState {
    pub(crate) fn waiting(reason: &'static str) -> Self {
        Self::Waiting {
            reason,
            message: String::new(),
        }
    }

    fn to_status(&self, id: &str) -> ContainerState {
        let mut state = ContainerState::default();
        match self {
            Self::Waiting { reason, message } => {
                state.waiting = Some(ContainerStateWaiting {
                    reason: Some((*reason).to_owned()),
                    message: text(message),
                });
            }
            Self::Running { since } => {
                state.running = Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                });
            }
            Self::Terminated(end) => {
                state.terminated = Some(ContainerStateTerminated {
                    exit_code: end.code,
                    reason: Some(end.reason.to_owned()),
                    message: text(&end.message),
                    started_at: Some(Time(end.started)),
                    finished_at: Some(Time(end.finished)),
                    container_id: text(id).map(|id| format!("process://{id}")),
                    ..ContainerStateTerminated::default()
                });
            }
        }
        state
    }
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Facts {
    fn initialized(&self) -> bool {
        self.init.iter().all(ContainerFacts::succeeded)
    }

    fn phase(&self) -> Phase {
        if self.is_finished {
            let well = self.initialized() && self.main.iter().all(ContainerFacts::succeeded);
            return if well {
                Phase::Succeeded
            } else {
                Phase::Failed
            };
        }
        let started = self.main.iter().any(ContainerFacts::was_started);
        if self.initialized() && started {
            Phase::Running
        } else {
            Phase::Pending
        }
    }

    fn unready(&self) -> Vec<&str> {
        let unready = self.main.iter().filter(|container| !container.is_running());
        unready.map(|container| container.name.as_str()).collect()
    }

    /// Computes the status. `pod` provides conditions of others and the transition times of ours.
    pub(crate) fn to_status(&self, pod: &Pod, now: Timestamp) -> PodStatus {
        let old = pod.status.clone().unwrap_or_default();
        let address = self.address.map(|address| address.to_string());
        let host = self.host.map(|host| host.to_string());
        PodStatus {
            phase: Some(self.phase().as_str().to_owned()),
            conditions: Some(conditions::conditions(self, &old, now)),
            pod_ips: address
                .iter()
                .map(|ip| PodIP { ip: ip.clone() })
                .collect::<Vec<_>>()
                .into(),
            host_ips: host
                .iter()
                .map(|ip| HostIP { ip: ip.clone() })
                .collect::<Vec<_>>()
                .into(),
            pod_ip: address,
            host_ip: host,
            start_time: self.started.map(Time),
            init_container_statuses: statuses(&self.init, true),
            container_statuses: statuses(&self.main, false),
            qos_class: old.qos_class,
            ..PodStatus::default()
        }
    }
}

fn statuses(containers: &[ContainerFacts], init: bool) -> Option<Vec<ContainerStatus>> {
    let statuses = containers.iter().map(|container| container.to_status(init));
    (!containers.is_empty()).then(|| statuses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(state: ContainerRunState) -> ContainerFacts {
        ContainerFacts {
            name: "c".into(),
            image: "i".into(),
            id: "id".into(),
            state,
            last: None,
            restarts: 0,
        }
    }

    fn ended(code: i32) -> ContainerRunState {
        let at = Timestamp::UNIX_EPOCH;
        let reason = if code == 0 {
            reason::COMPLETED
        } else {
            reason::ERROR
        };
        ContainerRunState::Terminated(Termination {
            code,
            reason,
            message: String::new(),
            started: at,
            finished: at,
        })
    }

    fn facts(init: ContainerRunState, main: ContainerRunState, over: bool) -> Facts {
        Facts {
            init: vec![container(init)],
            main: vec![container(main)],
            is_finished: over,
            ..Facts::default()
        }
    }

    #[test]
    fn phase_follows_containers() {
        let running = ContainerRunState::Running {
            since: Timestamp::UNIX_EPOCH,
        };
        let waiting = ContainerRunState::waiting(reason::CREATING);
        for (facts, phase) in [
            (
                facts(waiting.clone(), waiting.clone(), false),
                Phase::Pending,
            ),
            (
                facts(running.clone(), waiting.clone(), false),
                Phase::Pending,
            ),
            (facts(ended(0), waiting.clone(), false), Phase::Pending),
            (facts(ended(0), running, false), Phase::Running),
            (facts(ended(0), ended(1), false), Phase::Running),
            (facts(ended(0), ended(1), true), Phase::Failed),
            (facts(ended(0), ended(0), true), Phase::Succeeded),
            (facts(ended(1), waiting, true), Phase::Failed),
        ] {
            assert_eq!(facts.phase(), phase, "{facts:?}");
        }
    }

    #[test]
    fn crash_loop_status_matches_cluster() {
        let mut facts = facts(
            ended(0),
            ContainerRunState::waiting(reason::CRASH_LOOP),
            false,
        );
        let ContainerRunState::Terminated(end) = ended(3) else {
            unreachable!()
        };
        facts.main[0].last = Some(end);
        facts.main[0].restarts = 2;
        facts.address = Some("10.0.0.2".parse().unwrap());
        let status = facts.to_status(&Pod::default(), Timestamp::UNIX_EPOCH);
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["phase"], "Running");
        assert_eq!(json["podIPs"][0]["ip"], "10.0.0.2");
        let container = &json["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(container["restartCount"], 2);
        assert_eq!(container["ready"], false);
        assert_eq!(json["initContainerStatuses"][0]["ready"], true);
    }
}
