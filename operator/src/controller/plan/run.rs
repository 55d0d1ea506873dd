//! Sandboxes that are to run: how a start begins, and what replaces a Pod that is gone.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{PauseReason, Phase, PodStatus, Restarts, SandboxStatus};
use jiff::Timestamp;

use super::attend::attend;
use super::rest::{end, expire};
use super::say::since;
use super::wait::timeouts;
use super::{Action, Failure, Plan, Subject, deadline};
use crate::controller::facts::{Facts, PodFacts, Turn};

/// A command that ends so often without the sandbox ever having been ready is given up.
pub(super) const CRASHES: u32 = 3;

/// Decides for a sandbox that is to run.
pub(super) fn decide(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    let status = &subject.entry.status;
    let known = status.observed_generation == Some(subject.entry.generation);
    if status.phase == Phase::Failed && known && !is_mended(subject, facts) {
        return stay_failed(plan, subject, facts, now);
    }
    let starts = !matches!(status.phase, Phase::Starting | Phase::Running);
    if starts {
        start(plan, facts, now);
    }
    // A Pod of a start whose status was never written is this start's, and one whose pause was
    // called off goes on. Any other one is a leftover of the time before the pause or the failure.
    let called_off = status.phase == Phase::Pausing && is_own(status.pause_reason);
    let kept = called_off || is_after_rest(status, facts);
    let leftover = starts && status.phase != Phase::Pending && !kept;
    match &facts.pod {
        None => create(plan, subject, facts, now),
        Some(pod) if leftover || pod.deletion.is_some() => outlive(plan, pod, now),
        Some(pod) => attend(plan, subject, facts, pod, now),
    }
}

fn is_own(pause: Option<PauseReason>) -> bool {
    pause.is_some_and(|by| by != PauseReason::Requested)
}

/// Whether the Pod was made after the sandbox came to rest: by a start whose status got lost.
fn is_after_rest(status: &SandboxStatus, facts: &Facts) -> bool {
    let rest = match status.phase {
        Phase::Paused => status.paused_at.as_ref().map(|at| at.0),
        Phase::Stopped => status.stopped_at.as_ref().map(|at| at.0),
        Phase::Failed => since(status, ConditionType::Failed, true),
        _ => None,
    };
    let made = facts.pod.as_ref().and_then(|pod| pod.created_at);
    rest.zip(made).is_some_and(|(rest, made)| made > rest)
}

/// Whether the pool of a failed sandbox has another template than the one it failed with. A session
/// whose sandbox failed may have another one by now.
fn is_mended(subject: &Subject<'_>, facts: &Facts) -> bool {
    let failed_with = subject.entry.status.pool_revision.as_ref();
    let differs = failed_with.zip(facts.pool_revision.as_ref());
    subject.entry.session().is_none() && differs.is_some_and(|(old, new)| old != new)
}

/// A failed sandbox holds no compute and waits for a changed spec.
fn stay_failed(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    if let Some(pod) = &facts.pod {
        end(plan, pod, now);
    }
    let failed = since(&plan.status, ConditionType::Failed, true);
    let until = failed.and_then(|at| deadline(at, subject.deadlines.delete_paused_after));
    expire(plan, subject, until, now);
}

/// Begins a new start: what the last one left behind no longer holds.
fn start(plan: &mut Plan, facts: &Facts, now: Timestamp) {
    let status = &mut plan.status;
    // A start that is refused again and again still has only one deadline. One whose status was
    // never written began with its Pod.
    let waited = status.reason == Some(Reason::QuotaExceeded) && facts.turn == Turn::Has;
    if status.phase != Phase::Pending || waited {
        status.started_at = Some(now.into());
    } else if status.started_at.is_none() {
        let pod = facts.pod.as_ref().and_then(|pod| pod.created_at);
        status.started_at = Some(pod.unwrap_or(now).into());
    }
    status.restarts = Restarts::default();
    status.paused_at = None;
    status.pause_reason = None;
    status.stopped_at = None;
    status.pool_revision = None;
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
    if !has_turn(plan, subject, facts, now) {
        return;
    }
    // A Pod that vanished before the first status is known from its end alone.
    let lost = plan.status.pod_name.is_some() || (is_new(subject) && facts.lost_pod);
    if lost && !replace(plan, facts, now) {
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
    plan.reports = plan.lost || !is_new(subject);
    timeouts(plan, subject, now);
}

/// Whether its tenant's limits have room for it. Who waits for them waits no longer than for
/// anything else.
fn has_turn(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) -> bool {
    match &facts.turn {
        Turn::Has => return true,
        Turn::Never(why) => plan.fail(Reason::QuotaExceeded, why, Failure::Other),
        Turn::Waits(why) => {
            plan.say(Phase::Pending, Reason::QuotaExceeded, Some(why.clone()));
            plan.status.pod_status = Some(PodStatus::Pending);
            timeouts(plan, subject, now);
        }
    }
    false
}

/// Whether no status has ever been written: the first one can wait until there is news.
pub(super) fn is_new(subject: &Subject<'_>) -> bool {
    subject.entry.status.observed_generation.is_none()
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
        let why = pod.disruption.as_deref().unwrap_or("Deleted");
        lose(plan, why, "the Pod is being deleted");
    }
    plan.status.pod_status = Some(PodStatus::Pending);
    end(plan, pod, now);
}

/// Says that the Pod is lost. Saying so again changes nothing.
pub(super) fn lose(plan: &mut Plan, reason: &str, message: &str) {
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

/// Whether the sandbox has been ready since it was last started.
pub(super) fn was_ready(plan: &Plan) -> bool {
    match (&plan.status.ready_at, &plan.status.started_at) {
        (Some(ready), Some(started)) => ready >= started,
        _ => false,
    }
}
