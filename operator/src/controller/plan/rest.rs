//! Sandboxes that are not to run: paused ones keep their workspace, stopped ones keep nothing.

use crds::conditions::Reason;
use crds::names;
use crds::sandbox::{PauseReason, Phase, PodStatus};
use jiff::Timestamp;

use super::quiet::{self, Verdict};
use super::{Action, Grace, Plan, Subject, deadline, run};
use crate::controller::facts::{Facts, PodFacts};

/// How long after its grace period a Pod is taken for lost with its node (decision 015).
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Releases compute, unless it turns out at the last moment that the sandbox is not idle.
pub(super) fn pause_or_go_on(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    now: Timestamp,
) {
    let idle = subject.entry.own_pause() == Some(PauseReason::Idle);
    let alive = facts.pod.as_ref().filter(|pod| pod.deletion.is_none());
    let Some(pod) = alive.filter(|_| idle) else {
        return pause(plan, subject, facts, now);
    };
    plan.asks = pod.ip.is_some();
    match quiet::confirm(plan, subject, facts, now) {
        Verdict::Confirmed => pause(plan, subject, facts, now),
        Verdict::CalledOff => run::decide(plan, subject, facts, now),
        Verdict::Open => {}
    }
}

/// Releases compute.
fn pause(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    plan.status.pod_status = Some(PodStatus::NotFound);
    let by = subject.entry.own_pause().unwrap_or(PauseReason::Requested);
    plan.status.pause_reason = Some(by);
    plan.status.stopped_at = None;
    plan.forget_pod();
    if let Some(pod) = &facts.pod {
        plan.say(Phase::Pausing, reason(by), None);
        end(plan, pod, now);
        return;
    }
    release_secret(plan, subject, Phase::Paused);
    plan.say(Phase::Paused, reason(by), None);
    let since = plan.status.paused_at.get_or_insert(now.into()).0;
    let until = deadline(since, subject.deadlines.delete_paused_after);
    expire(plan, subject, until, now);
}

/// Begins a pause that nobody asked for. The Pod goes only after the status has said so: by then
/// every gateway holds new requests back, so none is cut off.
pub(super) fn pause_by_itself(plan: &mut Plan, by: PauseReason, now: Timestamp) {
    plan.say(Phase::Pausing, reason(by), None);
    plan.status.pod_status = Some(PodStatus::NotFound);
    plan.status.pause_reason = Some(by);
    plan.status.paused_at = Some(now.into());
    plan.forget_pod();
}

fn reason(by: PauseReason) -> Reason {
    match by {
        PauseReason::Requested => Reason::Requested,
        PauseReason::Idle => Reason::Idle,
        PauseReason::MaxRunTime => Reason::MaxRunTime,
    }
}

/// Releases everything; the object stays as a tombstone.
pub(super) fn stop(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    if let Some(pod) = &facts.pod {
        end(plan, pod, now);
    }
    // Before the status said so, a claim may exist that no status ever mentioned.
    let first = plan.status.phase != Phase::Stopped && subject.entry.spec.workspace.is_some();
    if first || plan.status.workspace_claim.is_some() {
        plan.actions.push(Action::DeleteClaim);
    }
    release_secret(plan, subject, Phase::Stopped);
    let expired = subject.entry.is_expired();
    let why = if expired {
        Reason::Expired
    } else {
        Reason::Requested
    };
    plan.say(Phase::Stopped, why, None);
    plan.forget_pod();
    plan.status.workspace_claim = None;
    plan.status.pod_status = Some(PodStatus::NotFound);
    plan.status.paused_at = None;
    plan.status.pause_reason = None;
    let since = plan.status.stopped_at.get_or_insert(now.into()).0;
    let until = deadline(since, subject.deadlines.delete_stopped_after);
    if until.is_some_and(|until| until <= now) {
        plan.actions.push(Action::DeleteSandbox);
    } else {
        plan.look_at(until);
    }
}

/// A sandbox at rest needs no environment; the next start makes it anew. Done once, on the way into
/// the phase.
fn release_secret(plan: &mut Plan, subject: &Subject<'_>, into: Phase) {
    if plan.status.phase != into && subject.entry.spec.command.is_none() {
        plan.actions.push(Action::DeleteSecret);
    }
}

/// Stops for good what has been at rest for too long: says so first, and the next pass releases
/// what is left.
pub(super) fn expire(
    plan: &mut Plan,
    subject: &Subject<'_>,
    until: Option<Timestamp>,
    now: Timestamp,
) {
    if until.is_none_or(|until| until > now) {
        plan.look_at(until);
        return;
    }
    // A start that was refused may have left a claim that its status does not mention.
    let claimed = subject.entry.spec.workspace.is_some();
    plan.status.workspace_claim = claimed.then(|| names::workspace_claim(&subject.entry.key.name));
    release_secret(plan, subject, Phase::Stopped);
    plan.say(Phase::Stopped, Reason::Expired, None);
    plan.status.stopped_at = Some(now.into());
    plan.status.pod_status = Some(PodStatus::NotFound);
}

/// Sees to it that a Pod ends: gently first, by force if its node does not answer.
pub(super) fn end(plan: &mut Plan, pod: &PodFacts, now: Timestamp) {
    let Some(deletion) = pod.deletion else {
        plan.delete(pod, Grace::Own);
        return;
    };
    let patience = deadline(deletion, Some(PATIENCE));
    if patience.is_some_and(|until| until <= now) {
        plan.delete(pod, Grace::None);
    } else {
        plan.look_at(patience);
    }
}
