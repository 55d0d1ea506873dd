//! The lifecycle state machine. From the Sandbox and the facts about its Pod it decides actions,
//! status and the next requeue. It is pure, so that every transition is a unit test.

mod decision;
mod existing_pod;
mod idle;
mod pause_stop;
mod readiness;
mod running;
mod starting;
mod status;
#[cfg(test)]
mod tests;

use crds::sandbox::{DesiredState, Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;

use crate::facts::Facts;
use decision::FailureKind;
use idle::IdlePauseDecision;
pub(super) use status::force_deletion_time;

pub use decision::{Action, ActionRejection, DeletionGrace, Plan, PlanInput};

/// Decides the next step of one sandbox.
pub fn plan(input: &PlanInput<'_>, facts: &Facts, now: Timestamp) -> Plan {
    let mut plan = Plan::unchanged(input);
    let own = facts.pod.as_ref().filter(|_| input.entry.deleting);
    // Kubernetes deletes these Pods, but only their nodes can confirm it.
    let terminating = own.filter(|pod| pod.grace_ends_at.is_some());
    for pod in terminating.into_iter().chain(&facts.orphan) {
        plan.ensure_pod_deleted(pod, now);
    }
    if input.entry.deleting {
        return plan;
    }
    match input.entry.desired_state() {
        DesiredState::Running => running::plan_running(&mut plan, input, facts, now),
        DesiredState::Paused => plan_pausing(&mut plan, input, facts, now),
        DesiredState::Stopped => pause_stop::plan_stopped(&mut plan, input, facts, now),
    }
    plan.capture_log_of_failure(input, facts);
    plan.finish_status(input, facts, now);
    plan
}

/// Plans for desired state `Paused`. An idle pause is confirmed before the Pod is deleted.
fn plan_pausing(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    match pause_stop::confirm_pause(plan, input, facts, now) {
        IdlePauseDecision::Confirmed => pause_stop::plan_paused(plan, input, facts, now),
        IdlePauseDecision::Cancelled => running::plan_running(plan, input, facts, now),
        IdlePauseDecision::Pending => {}
    }
}

/// The status after an action of the plan was rejected.
pub fn status_after_rejection(
    input: &PlanInput<'_>,
    facts: &Facts,
    rejection: &ActionRejection,
    now: Timestamp,
) -> SandboxStatus {
    let mut plan = Plan::unchanged(input);
    plan.status.pool_revision = None;
    // The rejected start began now, not with the start before the pause or the failure.
    let begins = !matches!(
        plan.status.phase,
        Phase::Pending | Phase::Starting | Phase::Running
    );
    if begins || plan.status.started_at.is_none() {
        plan.status.started_at = Some(now.into());
    }
    if rejection.is_terminal {
        plan.fail(rejection.reason, &rejection.message, FailureKind::Other);
    } else {
        let started = matches!(plan.status.phase, Phase::Starting | Phase::Running);
        let phase = if started {
            Phase::Starting
        } else {
            Phase::Pending
        };
        plan.set_phase(phase, rejection.reason, Some(rejection.message.clone()));
        if started {
            // Actions that can be rejected are planned only when there is no Pod.
            plan.status.pod_status = Some(PodStatus::Pending);
            plan.status.pod_ip = None;
            plan.status.node_name = None;
        }
        plan.status.pod_status.get_or_insert(PodStatus::NotFound);
    }
    plan.finish_status(input, facts, now);
    plan.status
}
