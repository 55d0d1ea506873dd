//! Status of a sandbox that is not ready yet, and the start timeout.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{Phase, PodStatus};
use jiff::Timestamp;

use super::decision::{DeletionGrace, FailureKind, Plan, PlanInput, deadline_after};
use super::status::condition_since;
use crate::facts::{
    Container, ContainerState, Facts, PodFacts, PodPhase, ProbeResult, StartProblem,
    StartProblemKind,
};
use shared::kubernetes::api_messages;

/// Time after the begin of a start, or of a container run, in which routine details are not
/// written. Each would be a write, and thousands of starts at once would flood the API server.
const STATUS_DETAIL_DELAY: std::time::Duration = std::time::Duration::from_secs(3);

/// Reports what the start waits for, and requeues at its timeout.
pub(super) fn report_starting(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    pod: &PodFacts,
    first: bool,
    now: Timestamp,
) {
    let was_running = plan.status.phase == Phase::Running;
    let (reason, message, routine) = waiting_reason(plan, input, facts, pod);
    let since = starting_since(plan, now).max(running_since(pod).unwrap_or_default().min(now));
    let details = deadline_after(since, Some(STATUS_DETAIL_DELAY));
    let early = routine && !was_running && details.is_some_and(|at| at > now);
    if early {
        // The first status says only that the start has begun.
        plan.requeue_no_later_than(details);
        plan.write_status = !input.has_no_status();
        if first {
            plan.status.pod_status = Some(PodStatus::Pending);
        }
    } else {
        plan.set_phase(Phase::Starting, reason, message);
        plan.status.pod_status = Some(pod_status(pod));
        plan.status.pod_ip.clone_from(&pod.ip);
        plan.status.node_name.clone_from(&pod.node);
    }
    if plan.has_been_ready() {
        replace_stuck_pod(plan, input, pod, now);
    } else {
        enforce_start_timeout(plan, input, now);
    }
}

/// Reason, message, and whether they are routine in every start.
fn waiting_reason(
    plan: &Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    pod: &PodFacts,
) -> (Reason, Option<String>, bool) {
    let detail = match &facts.readiness {
        Some(ProbeResult::NotReady(detail)) => detail.clone(),
        _ => None,
    };
    if let Some(problem) = &pod.start_problem {
        return (reason_of(problem), Some(problem.message.clone()), false);
    }
    if pod.node_silent {
        let node = pod.node.as_deref().unwrap_or_default();
        let message = format!("node {node} is not reporting and the sandbox does not respond");
        return (Reason::NodeNotReady, Some(message), false);
    }
    if pod.is_missing_claim() {
        let message = "the workspace PVC was deleted; a new, empty one is created";
        return (Reason::VolumeLost, Some(message.into()), false);
    }
    if let Some(why) = &pod.unschedulable {
        return (
            Reason::Unschedulable,
            Some(unschedulable_message(input, why)),
            true,
        );
    }
    if restarted(&pod.container) {
        let end = pod.container.describe_termination();
        let message = format!("the command terminated ({end}) and is being restarted");
        return (Reason::Restarting, Some(message), false);
    }
    if plan.status.reason == Some(Reason::PodReplaced) {
        return (Reason::PodReplaced, plan.status.message.clone(), true);
    }
    match pod.container.state {
        ContainerState::Running { .. } if facts.readiness.is_some() => {
            (Reason::WaitingForCommand, detail, true)
        }
        // No probe result in this process yet: the written status stands.
        ContainerState::Running { .. } if plan.status.reason == Some(Reason::WaitingForCommand) => {
            (Reason::WaitingForCommand, plan.status.message.clone(), true)
        }
        ContainerState::Running { .. } => (Reason::Initializing, None, true),
        _ => (Reason::CreatingPod, None, true),
    }
}

/// Adds PVC and storage class, which the message of the scheduler lacks.
fn unschedulable_message(input: &PlanInput<'_>, why: &str) -> String {
    let spec = &input.entry.spec;
    let Some(workspace) = &spec.workspace else {
        return why.to_owned();
    };
    if !api_messages::is_about_claims(why) {
        return why.to_owned();
    }
    let claim = names::workspace_claim(&input.entry.key.name);
    match &workspace.storage_class_name {
        Some(class) => format!("{why} (PVC {claim}, storage class {class})"),
        None => format!("{why} (PVC {claim}, default storage class of the cluster)"),
    }
}

fn restarted(container: &Container) -> bool {
    container.restarts > 0
        || matches!(
            container.state,
            ContainerState::Terminated | ContainerState::BackingOff
        )
}

fn pod_status(pod: &PodFacts) -> PodStatus {
    match (pod.phase, &pod.container.state) {
        (PodPhase::Running, ContainerState::Running { .. }) => PodStatus::Running,
        _ => PodStatus::Pending,
    }
}

pub(super) fn reason_of(problem: &StartProblem) -> Reason {
    match problem.kind {
        StartProblemKind::ImageName => Reason::InvalidImageName,
        StartProblemKind::ImagePull => Reason::ImagePullBackOff,
        StartProblemKind::ContainerConfig | StartProblemKind::MissingReference => {
            Reason::CreateContainerConfigError
        }
    }
}

fn running_since(pod: &PodFacts) -> Option<Timestamp> {
    match pod.container.state {
        ContainerState::Running { started_at } => started_at,
        _ => None,
    }
}

/// Begin of the present attempt to become ready.
fn starting_since(plan: &Plan, now: Timestamp) -> Timestamp {
    if condition_since(&plan.status, ConditionType::Ready, true).is_some() {
        return now;
    }
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    let unready = condition_since(&plan.status, ConditionType::Ready, false);
    unready.map_or(started, |unready| unready.max(started))
}

/// Replaces a Pod whose command runs and has not become ready within `startTimeout`. A silent node
/// is left to Kubernetes: its containers may still run.
fn replace_stuck_pod(plan: &mut Plan, input: &PlanInput<'_>, pod: &PodFacts, now: Timestamp) {
    let Some(running) = running_since(pod).filter(|_| !pod.node_silent) else {
        return;
    };
    let since = starting_since(plan, now).max(running.min(now));
    let until = deadline_after(since, input.deadlines.start_timeout);
    if until.is_none_or(|until| until > now) {
        plan.requeue_no_later_than(until);
        return;
    }
    plan.mark_pod_lost(
        "StartTimeout",
        "the command was not ready within startTimeout",
    );
    plan.delete_pod(pod, DeletionGrace::PodDefault);
}

/// Fails a start that exceeds `startTimeout`, unless the sandbox has been ready before.
pub(super) fn enforce_start_timeout(plan: &mut Plan, input: &PlanInput<'_>, now: Timestamp) {
    if plan.has_been_ready() {
        return;
    }
    let since = starting_since(plan, now);
    let until = deadline_after(since, input.deadlines.start_timeout);
    if until.is_none_or(|until| until > now) {
        plan.requeue_no_later_than(until);
        return;
    }
    let why = plan.status.message.clone().unwrap_or_default();
    let message = format!("the sandbox was not ready in time. {why}");
    plan.fail(Reason::StartTimeout, message.trim_end(), FailureKind::Other);
    plan.actions.clear();
}
