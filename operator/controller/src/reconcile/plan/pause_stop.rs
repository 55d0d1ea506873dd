//! Pause and stop. A paused sandbox keeps its workspace, a stopped one keeps only its object.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, PodStatus};
use jiff::Timestamp;

use super::decision::{Action, Plan, PlanInput, deadline_after};
use super::idle::{self, IdlePauseDecision};
use crate::facts::Facts;

/// Decides on the pause. An idle pause whose Pod still runs needs a second idle check; every other
/// pause is confirmed at once.
pub(super) fn confirm_pause(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    now: Timestamp,
) -> IdlePauseDecision {
    let idle = input.entry.automatic_pause() == Some(PauseReason::Idle);
    let running = facts.pod.as_ref().filter(|pod| pod.grace_ends_at.is_none());
    let Some(pod) = running.filter(|_| idle) else {
        return IdlePauseDecision::Confirmed;
    };
    plan.probe_readiness = pod.ip.is_some();
    idle::confirm_idle_pause(plan, input, facts, now)
}

/// Deletes the Pod, and the whole sandbox once `deletePausedAfter` has passed.
pub(super) fn plan_paused(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    plan.status.pod_status = Some(PodStatus::NotFound);
    let by = input
        .entry
        .automatic_pause()
        .unwrap_or(PauseReason::Requested);
    plan.status.pause_reason = Some(by);
    plan.status.stopped_at = None;
    plan.clear_pod_fields();
    if let Some(pod) = &facts.pod {
        plan.set_phase(Phase::Pausing, status_reason(by), None);
        plan.ensure_pod_deleted(pod, now);
        return;
    }
    delete_environment_secret(plan, input, Phase::Paused);
    plan.set_phase(Phase::Paused, status_reason(by), None);
    let since = plan.status.paused_at.get_or_insert(now.into()).0;
    let until = deadline_after(since, input.deadlines.delete_paused_after);
    stop_when_expired(plan, input, until, now);
}

/// Begins an automatic pause (idle timeout or maximum run time). A later reconcile deletes the
/// Pod, after every gateway has seen phase `Pausing` and holds new requests.
pub(super) fn begin_automatic_pause(plan: &mut Plan, by: PauseReason, now: Timestamp) {
    plan.set_phase(Phase::Pausing, status_reason(by), None);
    plan.status.pod_status = Some(PodStatus::NotFound);
    plan.status.pause_reason = Some(by);
    plan.status.paused_at = Some(now.into());
    plan.clear_pod_fields();
}

fn status_reason(by: PauseReason) -> Reason {
    match by {
        PauseReason::Requested => Reason::Requested,
        PauseReason::Idle => Reason::Idle,
        PauseReason::MaxRunTime => Reason::MaxRunTime,
    }
}

/// Deletes Pod, PVC and Secret; the object stays as a tombstone until `deleteStoppedAfter`.
pub(super) fn plan_stopped(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    if let Some(pod) = &facts.pod {
        plan.ensure_pod_deleted(pod, now);
    }
    if plan.status.phase != Phase::Stopped {
        plan.record_claim(input);
    }
    if let Some(name) = plan.status.workspace_claim.take() {
        plan.actions.push(Action::DeleteClaim { name });
    }
    delete_environment_secret(plan, input, Phase::Stopped);
    if input.entry.has_sealed_env {
        plan.actions.push(Action::DropSealedEnv);
    }
    let expired = input.entry.is_expired();
    let why = if expired {
        Reason::Expired
    } else {
        Reason::Requested
    };
    plan.set_phase(Phase::Stopped, why, None);
    plan.clear_pod_fields();
    plan.status.pod_status = Some(PodStatus::NotFound);
    plan.status.paused_at = None;
    plan.status.pause_reason = None;
    let since = plan.status.stopped_at.get_or_insert(now.into()).0;
    let until = deadline_after(since, input.deadlines.delete_stopped_after);
    if until.is_some_and(|until| until <= now) {
        plan.actions.push(Action::DeleteSandbox);
    } else {
        plan.requeue_no_later_than(until);
    }
}

/// Deletes the environment Secret once, on the transition into `into`. The next start creates a
/// new one.
fn delete_environment_secret(plan: &mut Plan, input: &PlanInput<'_>, into: Phase) {
    if plan.status.phase != into && input.entry.spec.command.is_none() {
        plan.actions.push(Action::DeleteSecret);
    }
}

/// Expires a paused or failed sandbox. The status is written first; the next reconcile deletes
/// the rest.
pub(super) fn stop_when_expired(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    until: Option<Timestamp>,
    now: Timestamp,
) {
    if until.is_none_or(|until| until > now) {
        plan.requeue_no_later_than(until);
        return;
    }
    plan.record_claim(input);
    delete_environment_secret(plan, input, Phase::Stopped);
    plan.set_phase(Phase::Stopped, Reason::Expired, None);
    plan.status.stopped_at = Some(now.into());
    plan.status.pod_status = Some(PodStatus::NotFound);
}
