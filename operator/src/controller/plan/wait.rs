//! What a sandbox that is not ready waits for, and for how long it may.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{Phase, PodStatus};
use jiff::Timestamp;

use super::run::is_new;
use super::say::since;
use super::{Failure, Plan, Subject, deadline};
use crate::controller::facts::{
    Answer, Container, ContainerState, Facts, PodFacts, PodPhase, Trouble, TroubleKind,
};

/// A start that ends within this time is not worth reporting details of, and neither is a container that
/// runs for less: each would be a write, and thousands of slow starts at once would be a storm of them.
const DETAILS_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Says what is being waited for, and for how long.
pub(super) fn wait(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    pod: &PodFacts,
    first: bool,
    now: Timestamp,
) {
    let was_running = plan.status.phase == Phase::Running;
    let (reason, message, calm) = waits_for(plan, subject, facts, pod);
    let since = starting_since(plan, now).max(running_since(pod).unwrap_or_default().min(now));
    let details = deadline(since, Some(DETAILS_AFTER));
    let early = calm && !was_running && details.is_some_and(|at| at > now);
    if early {
        // At first the status says only that the start has begun.
        plan.look_at(details);
        plan.reports = !is_new(subject);
        if first {
            plan.status.pod_status = Some(PodStatus::Pending);
        }
    } else {
        plan.say(Phase::Starting, reason, message);
        plan.status.pod_status = Some(pod_status(pod));
        plan.status.pod_ip.clone_from(&pod.ip);
        plan.status.node_name.clone_from(&pod.node);
    }
    timeouts(plan, subject, now);
}

/// Reason, message, and whether this is how every start looks.
fn waits_for(
    plan: &Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    pod: &PodFacts,
) -> (Reason, Option<String>, bool) {
    let detail = match &facts.answer {
        Some(Answer::NotReady(detail)) => detail.clone(),
        _ => None,
    };
    if let Some(trouble) = &pod.trouble {
        return (reason_of(trouble), Some(trouble.message.clone()), false);
    }
    if pod.silent {
        let node = pod.node.as_deref().unwrap_or_default();
        let message = format!("node {node} has stopped reporting, and the sandbox does not answer");
        return (Reason::NodeNotReady, Some(message), false);
    }
    if pod.lacks_claim() {
        let message = "the workspace's volume claim was deleted: it begins anew, empty";
        return (Reason::VolumeLost, Some(message.into()), false);
    }
    if let Some(why) = &pod.unschedulable {
        return (
            Reason::Unschedulable,
            Some(unschedulable(subject, why)),
            true,
        );
    }
    if restarted(&pod.container) {
        let end = pod.container.end();
        let message = format!("the command ended ({end}) and is started again");
        return (Reason::Restarting, Some(message), false);
    }
    if plan.status.reason == Some(Reason::PodReplaced) {
        return (Reason::PodReplaced, plan.status.message.clone(), true);
    }
    match pod.container.state {
        ContainerState::Running { .. } if facts.answer.is_some() => {
            (Reason::WaitingForCommand, detail, true)
        }
        // This process has not asked yet: what was said before it began stands.
        ContainerState::Running { .. } if plan.status.reason == Some(Reason::WaitingForCommand) => {
            (Reason::WaitingForCommand, plan.status.message.clone(), true)
        }
        ContainerState::Running { .. } => (Reason::Initializing, None, true),
        _ => (Reason::CreatingPod, None, true),
    }
}

/// The scheduler does not say which claim it misses, nor what that waits for.
fn unschedulable(subject: &Subject<'_>, why: &str) -> String {
    let spec = &subject.entry.spec;
    let Some(workspace) = &spec.workspace else {
        return why.to_owned();
    };
    if !why.to_ascii_lowercase().contains("persistentvolumeclaim") {
        return why.to_owned();
    }
    let claim = names::workspace_claim(&subject.entry.key.name);
    match &workspace.storage_class_name {
        Some(class) => format!("{why} (claim {claim}, storage class {class})"),
        None => format!("{why} (claim {claim}, the cluster's default storage class)"),
    }
}

fn restarted(container: &Container) -> bool {
    container.restarts > 0
        || matches!(
            container.state,
            ContainerState::Ended | ContainerState::BackingOff
        )
}

fn pod_status(pod: &PodFacts) -> PodStatus {
    match (pod.phase, &pod.container.state) {
        (PodPhase::Running, ContainerState::Running { .. }) => PodStatus::Running,
        _ => PodStatus::Pending,
    }
}

pub(super) fn reason_of(trouble: &Trouble) -> Reason {
    match trouble.kind {
        TroubleKind::ImageName | TroubleKind::ImagePull => Reason::ImagePull,
        TroubleKind::ContainerConfig | TroubleKind::Missing => Reason::ContainerConfig,
    }
}

fn running_since(pod: &PodFacts) -> Option<Timestamp> {
    match pod.container.state {
        ContainerState::Running { started_at } => started_at,
        _ => None,
    }
}

/// When the present attempt to become ready began.
fn starting_since(plan: &Plan, now: Timestamp) -> Timestamp {
    if since(&plan.status, ConditionType::Ready, true).is_some() {
        return now;
    }
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    let unready = since(&plan.status, ConditionType::Ready, false);
    unready.map_or(started, |unready| unready.max(started))
}

/// Gives up a start that takes too long.
pub(super) fn timeouts(plan: &mut Plan, subject: &Subject<'_>, now: Timestamp) {
    let since = starting_since(plan, now);
    let until = deadline(since, subject.deadlines.start_timeout);
    if until.is_none_or(|until| until > now) {
        plan.look_at(until);
        return;
    }
    let why = plan.status.message.clone().unwrap_or_default();
    let message = format!("the sandbox was not ready in time. {why}");
    plan.fail(Reason::StartTimeout, message.trim_end(), Failure::Other);
    plan.actions.clear();
}
