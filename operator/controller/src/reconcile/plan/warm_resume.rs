//! Warm resumes: during a pause, a dormant Pod with the volume of the sandbox waits for the resume,
//! which then takes no Pod start (`docs/decisions/119-restored-state-in-new-pods.md`).

use crds::sandbox::Phase;
use jiff::Timestamp;

use super::existing_pod::lost_pod_reason;
use super::{Action, Planner, deadline_after};
use crate::facts::{PodFacts, QuotaDecision};
use crate::reconcile::build::command::key_rotation;

/// Maximum number of Pods that are created ahead of one resume. Each of the others was lost.
pub(super) const MAX_WAITING_PODS: u32 = 3;

impl<'a> Planner<'a> {
    /// Pod that waits for the resume. Its supervisor is dormant.
    pub(super) fn waiting_pod(&self) -> Option<&'a PodFacts> {
        let pod = self.facts.pod.as_ref();
        pod.filter(|pod| pod.waits_for_resume(&self.input.entry.status))
    }

    /// Creates, keeps or deletes the Pod that waits for the resume. Nothing of it is in the status.
    pub(super) fn plan_waiting_pod(&mut self, paused_at: Timestamp) {
        let wanted = self.wants_waiting_pod(paused_at);
        match &self.facts.pod {
            Some(pod) if !wanted || !self.fits_resume(pod) => self.ensure_pod_deleted(pod),
            None if wanted && self.facts.waiting_pods < MAX_WAITING_PODS => {
                let create = Action::CreateWaitingPod { paused_at };
                self.plan.actions.push(create);
            }
            _ => {}
        }
    }

    /// Deletes a waiting Pod that a resume cannot use, or that would overtake the queue of the quota.
    /// Returns whether there is one: the start begins when it is gone.
    pub(super) fn gives_up_waiting_pod(&mut self) -> bool {
        let is_admitted = self.facts.quota == QuotaDecision::Admitted;
        let pod = self.waiting_pod();
        let Some(pod) = pod.filter(|pod| !is_admitted || !self.fits_resume(pod)) else {
            return false;
        };
        self.ensure_pod_deleted(pod);
        // In phase `Starting` it would be the Pod of the start.
        self.plan.write_status = false;
        true
    }

    /// Returns whether a Pod is to wait. Requeues at the end of that time.
    fn wants_waiting_pod(&mut self, paused_at: Timestamp) -> bool {
        let (spec, written) = (&self.input.entry.spec, &self.input.entry.status);
        // The Pod names the pause, so that has to be written before.
        let is_paused = [written.phase, self.plan.status.phase] == [Phase::Paused; 2];
        let has_state = written.workspace_claim.is_some() && written.ready_at.is_some();
        let is_dormant = spec.command.is_some();
        if !is_paused || !has_state || !is_dormant || spec.workspace.is_none() {
            return false;
        }
        let until = deadline_after(paused_at, self.input.deadlines.warm_resume_for);
        until.is_some() && !self.is_due(until)
    }

    /// Returns whether a resume can use the Pod: it is as a new one would be, and has no problem.
    fn fits_resume(&self, pod: &PodFacts) -> bool {
        let is_current =
            !self.facts.spec_changed && pod.key_rotation == key_rotation(&self.input.entry.spec);
        let has_failed = lost_pod_reason(pod).is_some()
            || pod.start_problem.is_some()
            || pod.container.restarts > 0
            || pod.container.has_ended();
        is_current && !has_failed && pod.grace_ends_at.is_none()
    }
}
