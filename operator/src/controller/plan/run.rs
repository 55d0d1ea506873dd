//! Sandboxes that are to run: their start, their readiness, and what happens when a Pod is lost.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus, Restarts};
use jiff::Timestamp;

use super::rest::{end, expire};
use super::say::since;
use super::{Action, Failure, Grace, Plan, Subject, deadline};
use crate::controller::facts::{
    Answer, Container, ContainerState, Facts, PodFacts, PodPhase, Trouble, TroubleKind,
};

/// A command that ends so often without the sandbox ever having been ready is given up.
pub(super) const CRASHES: u32 = 3;
/// How long trouble with image or configuration may last before the sandbox is given up.
pub(super) const TROUBLE_GRACE: std::time::Duration = std::time::Duration::from_mins(2);
/// A start that ends within this time is not worth reporting details of: each would be a write.
pub(super) const DETAILS_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Decides for a sandbox that is to run.
pub(super) fn decide(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    let status = &subject.entry.status;
    if status.phase == Phase::Failed && status.observed_generation == Some(subject.entry.generation)
    {
        return stay_failed(plan, subject, facts, now);
    }
    let starts = !matches!(status.phase, Phase::Starting | Phase::Running);
    if starts {
        start(plan, now);
    }
    // A Pod of a start whose status was never written is this start's. Any other one is a
    // leftover of the time before the pause or the failure.
    let leftover = starts && status.phase != Phase::Pending;
    match &facts.pod {
        None => create(plan, subject, facts, now),
        Some(pod) if leftover || pod.deletion.is_some() => outlive(plan, pod, now),
        Some(pod) => attend(plan, subject, facts, pod, now),
    }
}

/// A failed sandbox holds no compute and waits for a changed spec.
fn stay_failed(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    if let Some(pod) = &facts.pod {
        end(plan, pod, now);
    }
    let failed = since(&plan.status, ConditionType::Failed, true);
    let until = failed.and_then(|at| deadline(at, subject.deadlines.delete_paused_after));
    expire(plan, until, now);
}

/// Begins a new start: what the last one left behind no longer holds.
fn start(plan: &mut Plan, now: Timestamp) {
    let status = &mut plan.status;
    // A start that is refused again and again still has only one deadline.
    if status.phase != Phase::Pending || status.started_at.is_none() {
        status.started_at = Some(now.into());
    }
    status.restarts = Restarts::default();
    status.paused_at = None;
    status.pause_reason = None;
    status.stopped_at = None;
    plan.forget_pod();
    plan.say(Phase::Starting, Reason::CreatingPod, None);
    plan.status.pod_status = Some(PodStatus::NotFound);
}

/// There is no Pod: makes one, or the next one.
fn create(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    if facts.pool_missing {
        let pool = subject.entry.spec.pool.as_deref().unwrap_or_default();
        let message = format!("SandboxPool {pool} does not exist");
        plan.say(Phase::Pending, Reason::PoolNotFound, Some(message));
        plan.status.started_at = None;
        plan.status.pod_status = Some(PodStatus::NotFound);
        return;
    }
    if plan.status.pod_name.is_some() && !replace(plan, facts, now) {
        return;
    }
    if subject.entry.spec.workspace.is_some() {
        let claim = names::workspace_claim(&subject.entry.key.name);
        plan.actions.push(Action::CreateClaim);
        plan.status.workspace_claim = Some(claim);
    }
    let restarts = plan.status.restarts.count;
    plan.actions.push(Action::CreatePod { restarts });
    if plan.status.reason != Some(Reason::PodReplaced) {
        plan.say(Phase::Starting, Reason::CreatingPod, None);
    }
    plan.status.pod_name = Some(names::pod(&subject.entry.key.name));
    plan.status.pod_ip = None;
    plan.status.node_name = None;
    plan.status.pod_status = Some(PodStatus::Pending);
    timeouts(plan, subject, now);
}

/// Counts the loss of a Pod. Whether another one may be made now.
fn replace(plan: &mut Plan, facts: &Facts, now: Timestamp) -> bool {
    if plan.status.reason != Some(Reason::PodReplaced) {
        lose(plan, "Deleted", "the Pod was deleted");
    }
    if facts.replace_at.is_some_and(|at| at > now) {
        plan.look_at(facts.replace_at);
        return false;
    }
    plan.status.restarts.count += 1;
    if plan.status.restarts.count >= CRASHES && !was_ready(plan) {
        let message = "the Pod was lost three times before the sandbox was ready";
        plan.fail(Reason::CrashLoop, message, Failure::CrashLoop);
        return false;
    }
    plan.lost = true;
    true
}

/// A Pod on its way out cannot be used, and must be gone before there is another one.
fn outlive(plan: &mut Plan, pod: &PodFacts, now: Timestamp) {
    if plan.status.pod_name.is_some() && plan.status.reason != Some(Reason::PodReplaced) {
        lose(plan, "Deleted", "the Pod is being deleted");
    }
    plan.status.pod_status = Some(PodStatus::Pending);
    end(plan, pod, now);
}

/// Looks after a Pod that is there to stay.
fn attend(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, pod: &PodFacts, now: Timestamp) {
    let first = plan.status.pod_name.replace(pod.name.clone()).is_none();
    if subject.entry.spec.workspace.is_some() {
        plan.status.workspace_claim = Some(names::workspace_claim(&subject.entry.key.name));
    }
    if let Some((reason, message)) = remains(pod) {
        lose(plan, &reason, &message);
        let lost = matches!(pod.phase, PodPhase::Unknown) || reason == "NodeLost";
        plan.delete(pod, if lost { Grace::None } else { Grace::Own });
        return;
    }
    count_restarts(plan, pod);
    plan.asks = pod.ip.is_some() && asks_anything(subject, pod);
    if is_ready(plan, subject, facts, pod) {
        ready(plan, subject, pod, now);
    } else if let Some((reason, message, kind)) = hopeless(plan, pod, now) {
        plan.fail(reason, &message, kind);
        plan.delete(pod, Grace::Own);
    } else {
        wait(plan, subject, facts, pod, first, now);
    }
}

/// A Pod that will never run again, and why.
fn remains(pod: &PodFacts) -> Option<(String, String)> {
    let (default, message) = match pod.phase {
        PodPhase::Failed => ("Failed", "the Pod failed"),
        PodPhase::Succeeded => ("Completed", "the Pod ended"),
        PodPhase::Unknown => ("NodeLost", "the Pod's node does not answer"),
        _ if pod.reason.as_deref() == Some("NodeLost") => ("NodeLost", "the Pod's node is lost"),
        _ => return None,
    };
    let reason = pod.reason.as_deref().unwrap_or(default).to_owned();
    let message = match &pod.message {
        Some(detail) => format!("{message}: {reason}: {detail}"),
        None => format!("{message}: {reason}"),
    };
    Some((reason, message))
}

/// Says that the Pod is lost. Saying so again changes nothing.
fn lose(plan: &mut Plan, reason: &str, message: &str) {
    let before = (plan.status.reason, plan.status.message.take());
    plan.say(
        Phase::Starting,
        Reason::PodReplaced,
        Some(message.to_owned()),
    );
    if before != (plan.status.reason, plan.status.message.clone()) {
        plan.note_restart(reason);
    }
    plan.status.pod_status = Some(PodStatus::Pending);
    plan.status.pod_ip = None;
}

fn count_restarts(plan: &mut Plan, pod: &PodFacts) {
    let known = plan.status.restarts.count;
    let count = pod.restarts();
    if count > known {
        let reason = pod.container.last_end.as_deref().unwrap_or("Unknown");
        plan.note_restart(reason);
    }
    plan.status.restarts.count = count.max(known);
}

fn asks_anything(subject: &Subject<'_>, pod: &PodFacts) -> bool {
    let over = pod.container.state == ContainerState::BackingOff;
    !over && (pod.supervised || subject.port.is_some())
}

fn is_ready(plan: &Plan, subject: &Subject<'_>, facts: &Facts, pod: &PodFacts) -> bool {
    let alive = !matches!(
        pod.container.state,
        ContainerState::Ended | ContainerState::BackingOff
    );
    let kubelet = pod.supervised || pod.ready;
    let answers = match &facts.answer {
        _ if !pod.supervised && subject.port.is_none() => true,
        Some(answer) => *answer == Answer::Ready,
        // This process has not asked yet: what the status says holds until the contrary is known.
        None => plan.status.phase == Phase::Running && is_same_run(plan, pod),
    };
    alive && kubelet && answers && pod.ip.is_some()
}

/// Whether the status speaks of this Pod and of this run of its container.
fn is_same_run(plan: &Plan, pod: &PodFacts) -> bool {
    let Some(ready_at) = &plan.status.ready_at else {
        return false;
    };
    let ContainerState::Running { started_at } = pod.container.state else {
        return false;
    };
    let before = |at: Option<Timestamp>| at.is_none_or(|at| at <= ready_at.0);
    plan.status.pod_ip == pod.ip && before(pod.created_at) && before(started_at)
}

fn ready(plan: &mut Plan, subject: &Subject<'_>, pod: &PodFacts, now: Timestamp) {
    if plan.status.phase != Phase::Running {
        plan.status.ready_at = Some(now.into());
    }
    let lost = subject.entry.spec.workspace.is_none();
    let message = lost.then(|| "there is no workspace volume: files are lost on pause".to_owned());
    plan.say(Phase::Running, Reason::Ready, message);
    plan.status.pod_status = Some(PodStatus::Ready);
    plan.status.pod_ip.clone_from(&pod.ip);
    plan.status.node_name.clone_from(&pod.node);
    let started = plan.status.started_at.get_or_insert(now.into()).0;
    let until = deadline(started, subject.deadlines.max_run_time);
    if until.is_some_and(|until| until <= now) {
        plan.status.pause_reason = Some(PauseReason::MaxRunTime);
        plan.actions.push(Action::Ask(DesiredState::Paused));
    } else {
        plan.look_at(until);
    }
}

/// Why this start is given up, if it is.
fn hopeless(plan: &mut Plan, pod: &PodFacts, now: Timestamp) -> Option<(Reason, String, Failure)> {
    if pod.ends() >= CRASHES && !was_ready(plan) {
        let end = pod.container.last_end.as_deref().unwrap_or("unknown");
        let message = format!("the command ended {} times, last with {end}", pod.ends());
        return Some((Reason::CrashLoop, message, Failure::CrashLoop));
    }
    let trouble = pod.trouble.as_ref()?;
    let until = deadline(trouble.since.unwrap_or(now), Some(TROUBLE_GRACE));
    // What has been ready once has work to lose: it is not given up for a registry's bad hour.
    let patient = was_ready(plan) || until.is_none_or(|until| until > now);
    if trouble.kind != TroubleKind::ImageName && patient {
        plan.look_at(until.filter(|until| *until > now));
        return None;
    }
    Some((reason_of(trouble), trouble.message.clone(), Failure::Other))
}

/// Says what is being waited for, and for how long.
fn wait(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    pod: &PodFacts,
    first: bool,
    now: Timestamp,
) {
    let was_running = plan.status.phase == Phase::Running;
    let (reason, message, calm) = waits_for(plan, facts, pod);
    let details = deadline(starting_since(plan, now), Some(DETAILS_AFTER));
    let early = calm && !was_running && details.is_some_and(|at| at > now);
    if early {
        // At first the status says only that the start has begun.
        plan.look_at(details);
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
fn waits_for(plan: &Plan, facts: &Facts, pod: &PodFacts) -> (Reason, Option<String>, bool) {
    let detail = match &facts.answer {
        Some(Answer::NotReady(detail)) => detail.clone(),
        _ => None,
    };
    if let Some(trouble) = &pod.trouble {
        return (reason_of(trouble), Some(trouble.message.clone()), false);
    }
    if let Some(why) = &pod.unschedulable {
        return (Reason::Unschedulable, Some(why.clone()), true);
    }
    if restarted(&pod.container) {
        let end = pod.container.last_end.as_deref().unwrap_or("unknown");
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
        ContainerState::Running { .. } => (Reason::Initializing, None, true),
        _ => (Reason::CreatingPod, None, true),
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

fn reason_of(trouble: &Trouble) -> Reason {
    match trouble.kind {
        TroubleKind::ImageName | TroubleKind::ImagePull => Reason::ImagePull,
        TroubleKind::ContainerConfig => Reason::ContainerConfig,
    }
}

/// Whether the sandbox has been ready since it was last started.
fn was_ready(plan: &Plan) -> bool {
    match (&plan.status.ready_at, &plan.status.started_at) {
        (Some(ready), Some(started)) => ready >= started,
        _ => false,
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
fn timeouts(plan: &mut Plan, subject: &Subject<'_>, now: Timestamp) {
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
