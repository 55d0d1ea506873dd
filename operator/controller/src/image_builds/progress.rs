//! State of a build, from its Pod.

use builder::BuiltImage;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use shared::image_builds::{BUILD_CONTAINER, reason};

use super::failure::Failure;
use super::pod::{FETCH_CONTAINER, PUSH_CONTAINER};

/// Reasons with which a Pod fails by itself; every other failure without one of a container is that
/// of its node.
const DEADLINE: &str = "DeadlineExceeded";
const EVICTED: &str = "Evicted";
/// Word of the messages of evictions for a limit of the Pod; those for the node lack it.
const LIMIT: &str = "limit";
/// Reasons of containers that did not start.
const NOT_STARTED: [&str; 2] = ["ContainerCannotRun", "StartError"];
/// Waiting reasons that do not go away by themselves.
const HOPELESS: [&str; 4] = [
    "CreateContainerConfigError",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
];
const OUT_OF_MEMORY: &str = "OOMKilled";
/// Exit code of the builder if the Dockerfile cannot be built.
const STEP_FAILED: i32 = 1;

/// State of the Pod of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// It runs, or waits for its node.
    Unfinished,
    /// All containers have ended well. The image is known if the last one has pushed it.
    Succeeded(Option<BuiltImage>),
    Failed(Failure),
    /// It is not the fault of the build that the Pod has ended.
    Lost(String),
}

pub(super) fn progress(pod: &Pod) -> Progress {
    let Some(status) = &pod.status else {
        return Progress::Unfinished;
    };
    match status.phase.as_deref() {
        Some("Succeeded") => succeeded(status),
        Some("Failed") => failed(status),
        _ => hopeless(status).map_or(Progress::Unfinished, Progress::Failed),
    }
}

fn succeeded(status: &PodStatus) -> Progress {
    let Some(push) = containers(status).find(|container| container.name == PUSH_CONTAINER) else {
        return Progress::Succeeded(None);
    };
    let message = terminated(push).map(|(_, message)| message);
    match message.and_then(|message| serde_json::from_str(&message).ok()) {
        Some(built) => Progress::Succeeded(Some(built)),
        None => Progress::Failed(Failure::new(
            reason::BUILDER_ERROR,
            "the last step did not say which image it has pushed",
        )),
    }
}

fn failed(status: &PodStatus) -> Progress {
    if status.reason.as_deref() == Some(DEADLINE) {
        return Progress::Failed(Failure::deadline(waiting_for(status).as_deref()));
    }
    let said = status.message.as_deref().unwrap_or_default();
    if status.reason.as_deref() == Some(EVICTED) && said.contains(LIMIT) {
        return Progress::Failed(Failure::new("OutOfDisk", said));
    }
    let ended = containers(status).filter_map(|container| {
        let (code, message) = terminated(container)?;
        (code != 0).then_some((container, code, message))
    });
    // An eviction ends containers too.
    let reason = status.reason.as_deref().filter(|reason| !reason.is_empty());
    let (Some((container, code, message)), None) = (ended.last(), reason) else {
        let message = status.message.clone().or_else(|| reason.map(str::to_owned));
        return Progress::Lost(message.unwrap_or_else(|| "its Pod has failed".to_owned()));
    };
    let failure = match container.name.as_str() {
        FETCH_CONTAINER | PUSH_CONTAINER => Failure::new(reason::REGISTRY_ERROR, message),
        _ if has_reason(container, &NOT_STARTED) => Failure::new(reason::BUILDER_ERROR, message),
        _ if has_reason(container, &[OUT_OF_MEMORY]) => {
            Failure::new("OutOfMemory", "the build exceeded its memory limit")
        }
        _ if code == STEP_FAILED => Failure::new("BuildFailed", "an instruction has failed"),
        // Signals, or a node that has restarted.
        _ => return Progress::Lost(format!("the builder ended with exit code {code}")),
    };
    Progress::Failed(failure)
}

/// Reason for which the Pod will not start.
fn hopeless(status: &PodStatus) -> Option<Failure> {
    let waiting = containers(status).filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting
            .reason
            .as_deref()
            .filter(|reason| HOPELESS.contains(reason))?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(format!("container {}: {reason}: {message}", container.name))
    });
    let message = waiting.last()?;
    Some(Failure::new(reason::BUILDER_ERROR, message))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

/// Exit code and termination message.
fn terminated(container: &ContainerStatus) -> Option<(i32, String)> {
    let terminated = container.state.as_ref()?.terminated.as_ref()?;
    Some((
        terminated.exit_code,
        terminated.message.clone().unwrap_or_default(),
    ))
}

fn has_reason(container: &ContainerStatus, reasons: &[&str]) -> bool {
    let state = container.state.as_ref();
    let terminated = state.and_then(|state| state.terminated.as_ref());
    let reason = terminated.and_then(|ended| ended.reason.as_deref());
    reason.is_some_and(|reason| reasons.contains(&reason))
}

/// Reason for which a Pod has not ended, for example no node or no image.
pub(super) fn waiting_for(status: &PodStatus) -> Option<String> {
    let waiting = containers(status).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.message.clone()
    });
    let conditions = status.conditions.iter().flatten();
    let mut unmet = conditions.filter(|condition| condition.status == "False");
    waiting.or_else(|| unmet.find_map(|condition| condition.message.clone()))
}

/// Returns whether the builder has written a log.
pub(super) fn has_log(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut found = status.into_iter().flat_map(containers);
    found.any(|container| {
        let state = container.state.as_ref();
        let has_begun = state.is_some_and(|state| state.waiting.is_none());
        container.name == BUILD_CONTAINER && has_begun
    })
}

#[cfg(test)]
mod tests;
