//! Sandboxes that are not to run: paused ones keep their workspace, stopped ones keep nothing.

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus};
use jiff::Timestamp;

use super::{Action, Grace, Plan, Subject, deadline};
use crate::controller::facts::{Facts, PodFacts};

/// How long after its grace period a Pod is taken for lost with its node.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

/// Releases compute.
pub(super) fn pause(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
    plan.status.pod_status = Some(PodStatus::NotFound);
    plan.status
        .pause_reason
        .get_or_insert(PauseReason::Requested);
    plan.status.stopped_at = None;
    plan.forget_pod();
    if let Some(pod) = &facts.pod {
        plan.say(Phase::Pausing, Reason::Requested, None);
        end(plan, pod, now);
        return;
    }
    release_secret(plan, subject, Phase::Paused);
    plan.say(Phase::Paused, Reason::Requested, None);
    let since = plan.status.paused_at.get_or_insert(now.into()).0;
    expire(
        plan,
        deadline(since, subject.deadlines.delete_paused_after),
        now,
    );
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
    plan.say(Phase::Stopped, Reason::Requested, None);
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

/// Stops what has been at rest for too long.
pub(super) fn expire(plan: &mut Plan, until: Option<Timestamp>, now: Timestamp) {
    if until.is_some_and(|until| until <= now) {
        plan.actions.push(Action::Ask(DesiredState::Stopped));
    } else {
        plan.look_at(until);
    }
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
