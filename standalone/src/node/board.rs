//! The facts about one Pod, shared between the tasks that make them and the one that reports.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::status::{ContainerFacts, Facts, State, Termination, reason};

/// Facts and a bell.
#[derive(Debug)]
pub(crate) struct Board {
    facts: Mutex<Facts>,
    pub changed: Notify,
}

/// A container's place on the board.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Init(usize),
    Main(usize),
}

impl Board {
    /// The board of a Pod; one that ran before this process started goes on counting.
    pub(crate) fn new(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let waiting = if spec.init_containers.iter().flatten().next().is_some() {
            reason::INITIALIZING
        } else {
            reason::CREATING
        };
        let init = places(
            spec.init_containers.as_deref(),
            status.init_container_statuses.as_deref(),
            reason::INITIALIZING,
        );
        let main = places(
            Some(&spec.containers),
            status.container_statuses.as_deref(),
            waiting,
        );
        let started = status.start_time.map_or_else(Timestamp::now, |time| time.0);
        let facts = Facts {
            init,
            main,
            started: Some(started),
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
        place: Place,
        change: impl FnOnce(&mut ContainerFacts) -> T,
    ) -> Option<T> {
        let mut facts = self.facts.lock();
        let container = match place {
            Place::Init(number) => facts.init.get_mut(number),
            Place::Main(number) => facts.main.get_mut(number),
        };
        let result = container.map(change);
        drop(facts);
        self.changed.notify_one();
        result
    }
}

fn places(
    containers: Option<&[Container]>,
    old: Option<&[ContainerStatus]>,
    waiting: &'static str,
) -> Vec<ContainerFacts> {
    let place = |container: &Container| {
        let old = old
            .into_iter()
            .flatten()
            .find(|status| status.name == container.name);
        let last = old.and_then(lost);
        let restarts = old.map_or(0, |status| status.restart_count);
        ContainerFacts {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            id: String::new(),
            state: State::waiting(waiting),
            restarts: restarts + i32::from(last.is_some()),
            last,
        }
    };
    containers.into_iter().flatten().map(place).collect()
}

/// How a container that this node had started before it restarted has ended.
fn lost(status: &ContainerStatus) -> Option<Termination> {
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
    fn a_container_that_was_running_counts_one_more() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 3,
                "state": {"running": {}},
            }]},
        }))
        .unwrap();
        let facts = Board::new(&pod).facts();
        assert_eq!((facts.main[0].restarts, facts.main[1].restarts), (4, 0));
        assert_eq!(facts.main[0].last.as_ref().unwrap().reason, reason::UNKNOWN);
        assert_eq!(facts.main[1].last, None);
    }
}
