//! Shared state of one Pod: container runners update it, the status writer reports it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::capacity::Resources;
use super::status::{ContainerFacts, ContainerRunState, Facts, Termination, reason};

/// Facts about a Pod with change notification.
#[derive(Debug)]
pub(crate) struct PodState {
    facts: Mutex<Facts>,
    pub changed: Notify,
}

/// Index of a container in the Pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ContainerRef {
    Init(usize),
    Main(usize),
}

impl PodState {
    /// Initial state of a Pod. Restart counts continue from its status.
    pub(crate) fn new(pod: &Pod, machine: Resources) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let waiting = if spec.init_containers.iter().flatten().next().is_some() {
            reason::INITIALIZING
        } else {
            reason::CREATING
        };
        let init = initial_facts(
            spec.init_containers.as_deref(),
            status.init_container_statuses.as_deref(),
            reason::INITIALIZING,
        );
        let main = initial_facts(
            Some(&spec.containers),
            status.container_statuses.as_deref(),
            waiting,
        );
        let started = status.start_time.map_or_else(Timestamp::now, |time| time.0);
        let facts = Facts {
            init,
            main,
            started: Some(started),
            unschedulable: machine
                .rejection(&spec)
                .filter(|_| spec.node_name.is_none()),
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

    pub(crate) fn update(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock());
        self.changed.notify_one();
    }

    pub(crate) fn container<T>(
        &self,
        container_ref: ContainerRef,
        change: impl FnOnce(&mut ContainerFacts) -> T,
    ) -> Option<T> {
        let mut facts = self.facts.lock();
        let container = match container_ref {
            ContainerRef::Init(number) => facts.init.get_mut(number),
            ContainerRef::Main(number) => facts.main.get_mut(number),
        };
        let result = container.map(change);
        drop(facts);
        self.changed.notify_one();
        result
    }
}

fn initial_facts(
    containers: Option<&[Container]>,
    old: Option<&[ContainerStatus]>,
    waiting: &'static str,
) -> Vec<ContainerFacts> {
    let container_ref = |container: &Container| {
        let old = old
            .into_iter()
            .flatten()
            .find(|status| status.name == container.name);
        let last = old.and_then(unseen_termination);
        let restarts = old.map_or(0, |status| status.restart_count);
        ContainerFacts {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            id: String::new(),
            state: ContainerRunState::waiting(waiting),
            restarts: restarts + i32::from(last.is_some()),
            last,
        }
    };
    containers
        .into_iter()
        .flatten()
        .map(container_ref)
        .collect()
}

/// Termination of a container that this node had started before it restarted.
fn unseen_termination(status: &ContainerStatus) -> Option<Termination> {
    let state = status.state.as_ref()?;
    let now = Timestamp::now();
    if let Some(running) = &state.running {
        let started = running.started_at.as_ref().map_or(now, |time| time.0);
        let message = "the node restarted while the container was running".to_owned();
        return Some(Termination {
            code: 137,
            reason: reason::UNKNOWN,
            message,
            started,
            finished: now,
        });
    }
    let ended = state
        .terminated
        .as_ref()
        .or(status.last_state.as_ref()?.terminated.as_ref())?;
    let moment = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().map_or(now, |time| time.0)
    };
    Some(Termination {
        code: ended.exit_code,
        reason: if ended.exit_code == 0 {
            reason::COMPLETED
        } else {
            reason::ERROR
        },
        message: String::new(),
        started: moment(&ended.started_at),
        finished: moment(&ended.finished_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn running_container_counts_one_restart_after_node_restart() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 3,
                "state": {"running": {}},
            }]},
        }))
        .unwrap();
        let facts = PodState::new(&pod, Resources::of_machine()).facts();
        assert_eq!((facts.main[0].restarts, facts.main[1].restarts), (4, 0));
        assert_eq!(facts.main[0].last.as_ref().unwrap().reason, reason::UNKNOWN);
        assert_eq!(facts.main[1].last, None);
    }
}
