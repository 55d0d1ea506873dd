//! The lifecycle state machine. From the Sandbox and the facts about its Pod it decides actions,
//! status and the next requeue. It is pure, so that every transition is a unit test.

mod decision;
mod existing_pod;
mod idle;
mod pause_stop;
mod persistence;
mod running;
mod starting;
mod status;
#[cfg(test)]
mod tests;
mod warm_resume;

use crds::sandbox::{DesiredState, Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;

use crate::facts::Facts;
use decision::{FailureKind, deadline_after};
use idle::PauseDecision;
pub(super) use status::force_deletion_time;

pub use decision::{Action, ActionRejection, DeletionGrace, Plan, PlanInput};

/// One decision: what it rests on, and the plan so far.
struct Planner<'a> {
    input: &'a PlanInput<'a>,
    facts: &'a Facts,
    now: Timestamp,
    plan: Plan,
}

/// Decides the next step of one sandbox.
pub fn plan(input: &PlanInput<'_>, facts: &Facts, now: Timestamp) -> Plan {
    let mut planner = Planner::new(input, facts, now);
    planner.decide();
    planner.plan
}

/// The status after an action of the plan was rejected.
pub fn status_after_rejection(
    input: &PlanInput<'_>,
    facts: &Facts,
    rejection: &ActionRejection,
    now: Timestamp,
) -> SandboxStatus {
    let mut planner = Planner::new(input, facts, now);
    planner.reject(rejection);
    planner.finish_status();
    planner.plan.status
}

impl Planner<'_> {
    fn decide(&mut self) {
        let entry = self.input.entry;
        let own = self.facts.pod.as_ref().filter(|_| entry.deleting);
        // Kubernetes deletes these Pods, but only their nodes can confirm it.
        let terminating = own.filter(|pod| pod.grace_ends_at.is_some());
        for pod in terminating.into_iter().chain(&self.facts.orphan) {
            self.ensure_pod_deleted(pod);
        }
        if entry.deleting {
            return;
        }
        if let Some(surplus) = &self.facts.surplus {
            self.ensure_pod_deleted(surplus);
        }
        match entry.desired_state() {
            DesiredState::Running => self.plan_running(),
            // An idle pause is confirmed before the Pod is deleted.
            DesiredState::Paused => match self.confirm_pause() {
                PauseDecision::Confirmed => self.plan_paused(),
                PauseDecision::Cancelled => self.plan_running(),
                PauseDecision::Pending => {}
            },
            DesiredState::Stopped => self.plan_stopped(),
        }
        self.capture_log_of_failure();
        self.finish_status();
        let actions = &mut self.plan.actions;
        let creates_pod =
            |action: &Action| matches!(action, Action::CreatePod { .. } | Action::ClaimPod { .. });
        let has_pod = self.facts.pod.is_some() || actions.iter().any(creates_pod);
        if self.facts.isolation_due && has_pod {
            actions.insert(0, Action::IsolateNamespace);
        }
    }

    fn reject(&mut self, rejection: &ActionRejection) {
        let status = &mut self.plan.status;
        status.pool_revision = None;
        let started = matches!(status.phase, Phase::Starting | Phase::Running);
        // The rejected start began now, not with the start before the pause or the failure.
        if status.started_at.is_none() || !(started || status.phase == Phase::Pending) {
            status.started_at = Some(self.now.into());
        }
        if rejection.is_terminal {
            return self.fail(rejection.reason, &rejection.message, FailureKind::Other);
        }
        if started {
            // Actions that can be rejected are planned only when there is no Pod.
            status.pod_status = Some(PodStatus::Pending);
            status.pod_ip = None;
            status.node_name = None;
        }
        status.pod_status.get_or_insert(PodStatus::NotFound);
        let phase = if started {
            Phase::Starting
        } else {
            Phase::Pending
        };
        self.set_phase(phase, rejection.reason, Some(rejection.message.clone()));
    }
}
