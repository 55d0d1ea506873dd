//! Readiness of a Pod, and the message that names its basis (`docs/lifecycle.md`, "Readiness").

use crds::contract::control::MIN_RUN_SECONDS;
use crds::sandbox::{Phase, SandboxStatus};
use jiff::Timestamp;

use super::decision::{Plan, PlanInput, deadline_after};
use crate::facts::{ContainerState, Facts, PodFacts, ProbeResult};

/// Minimum run of a container that nothing probes before it counts as ready.
const MIN_RUN: std::time::Duration = std::time::Duration::from_secs(MIN_RUN_SECONDS);

pub(super) fn is_probeable(input: &PlanInput<'_>, pod: &PodFacts) -> bool {
    let over = pod.container.state == ContainerState::BackingOff;
    !over && (pod.supervised || input.probe.port.is_some())
}

pub(super) fn is_ready(plan: &Plan, input: &PlanInput<'_>, facts: &Facts, pod: &PodFacts) -> bool {
    let alive = !matches!(
        pod.container.state,
        ContainerState::Terminated | ContainerState::BackingOff
    );
    let kubelet = pod.supervised || pod.ready || pod.node_silent;
    let answers = match &facts.readiness {
        _ if !pod.supervised && input.probe.port.is_none() => true,
        Some(answer) => *answer == ProbeResult::Ready,
        // No probe result in this process yet: the written status holds until a probe contradicts
        // it.
        None => plan.status.phase == Phase::Running && is_same_run(&input.entry.status, pod),
    };
    alive && kubelet && answers && pod.ip.is_some()
}

/// Returns whether the written status belongs to this Pod and container run. Uid and restart count
/// tell; times do not, because kubelet and controller have different clocks.
fn is_same_run(status: &SandboxStatus, pod: &PodFacts) -> bool {
    let runs = matches!(pod.container.state, ContainerState::Running { .. });
    let same_pod = status.pod_uid.as_ref() == Some(&pod.uid);
    runs && same_pod && pod.restarts() <= status.restarts.count
}

/// End of the minimum run of a container that nothing probes, while it is in the future. The start
/// is a time of the kubelet, whose clock may be ahead: by more than the minimum run, it is ignored.
pub(super) fn min_run_ends_at(
    input: &PlanInput<'_>,
    pod: &PodFacts,
    now: Timestamp,
) -> Option<Timestamp> {
    let ContainerState::Running { started_at } = pod.container.state else {
        return None;
    };
    let unprobed = !pod.supervised && input.probe.port.is_none();
    let until = deadline_after(started_at.filter(|_| unprobed)?, Some(MIN_RUN))?;
    let latest = deadline_after(now, Some(2 * MIN_RUN))?;
    (until > now && until <= latest).then_some(until)
}

/// Basis of the readiness of a running sandbox.
fn readiness_basis(input: &PlanInput<'_>, pod: &PodFacts) -> String {
    match (pod.supervised, input.probe.port, &input.probe.path) {
        (true, Some(port), Some(path)) => format!("port {port} answers GET {path}"),
        (true, Some(port), None) => format!("port {port} accepts connections"),
        (true, None, _) => format!("the command has run for {MIN_RUN_SECONDS} s; it has no port"),
        (false, Some(port), _) => {
            format!("the Pod is Ready and port {port} accepts connections")
        }
        (false, None, _) => {
            format!("the Pod is Ready and has run for {MIN_RUN_SECONDS} s; it has no port")
        }
    }
}

/// Message of a running sandbox: the basis of its readiness, and notes for its owner.
pub(super) fn status_note(input: &PlanInput<'_>, pod: &PodFacts) -> String {
    let lost = input.entry.spec.workspace.is_none();
    let lost = lost.then(|| "no workspace volume: files are lost on pause".to_owned());
    let silent = pod
        .node_silent
        .then(|| "the node is not reporting".to_owned());
    let notes = pod.annotations.note.iter().cloned();
    let basis = [readiness_basis(input, pod)];
    let remarks: Vec<_> = basis
        .into_iter()
        .chain(notes)
        .chain(lost)
        .chain(silent)
        .collect();
    remarks.join("; ")
}
