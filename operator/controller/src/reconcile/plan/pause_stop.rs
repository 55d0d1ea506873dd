//! Pause and stop. A paused sandbox keeps its workspace, a stopped one keeps only its object.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, PodStatus};
use jiff::Timestamp;

use super::{Action, Planner, deadline_after};

impl Planner<'_> {
    /// Deletes the Pod, and the whole sandbox once `deletePausedAfter` has passed.
    pub(super) fn plan_paused(&mut self) {
        let by = self
            .input
            .entry
            .automatic_pause()
            .unwrap_or(PauseReason::Requested);
        self.set_pausing(by);
        self.plan.status.stopped_at = None;
        let waits = self.waiting_pod().is_some();
        if let Some(pod) = self.facts.pod.as_ref().filter(|_| !waits) {
            if !self.awaits_save(pod) {
                self.save_on_silent_node(pod);
                self.record_end_below_level(pod);
                self.ensure_pod_deleted(pod);
            }
            return;
        }
        self.plan.status.phase = Phase::Paused;
        if !waits {
            self.record_end_without_save();
        }
        let since = self.plan.status.paused_at.get_or_insert(self.now.into()).0;
        self.stop_when_expired(since);
        self.plan_waiting_pod(since);
    }

    /// Begins an automatic pause (idle timeout or maximum run time). A later reconcile deletes the
    /// Pod, after every gateway has seen phase `Pausing` and holds new requests.
    pub(super) fn begin_automatic_pause(&mut self, by: PauseReason) {
        self.set_pausing(by);
        self.plan.status.paused_at = Some(self.now.into());
    }

    fn set_pausing(&mut self, by: PauseReason) {
        let reason = match by {
            PauseReason::Requested => Reason::Requested,
            PauseReason::Idle => Reason::Idle,
            PauseReason::MaxRunTime => Reason::MaxRunTime,
        };
        self.set_phase(Phase::Pausing, reason, None);
        self.plan.status.pod_status = Some(PodStatus::NotFound);
        self.plan.status.pause_reason = Some(by);
        self.clear_pod_fields();
    }

    /// Deletes Pod and PVC; the object stays as a tombstone until `deleteStoppedAfter`.
    pub(super) fn plan_stopped(&mut self) {
        let entry = self.input.entry;
        if let Some(pod) = &self.facts.pod {
            self.ensure_pod_deleted(pod);
        }
        if entry.status.phase != Phase::Stopped {
            self.record_claim();
        }
        if let Some(name) = self.plan.status.workspace_claim.take() {
            self.plan.actions.push(Action::DeleteClaim { name });
            self.plan.status.has_state_volume = false;
            self.plan.status.root_mechanism = None;
        }
        if entry.has_sealed_env {
            self.plan.actions.push(Action::DropSealedEnv);
        }
        let why = if entry.is_expired() {
            Reason::Expired
        } else {
            Reason::Requested
        };
        self.set_phase(Phase::Stopped, why, None);
        self.clear_pod_fields();
        self.plan.status.pod_status = Some(PodStatus::NotFound);
        self.plan.status.paused_at = None;
        self.plan.status.pause_reason = None;
        self.plan.status.persisted = None;
        self.plan.status.restored = None;
        let since = self.plan.status.stopped_at.get_or_insert(self.now.into()).0;
        if self.is_due(deadline_after(
            since,
            self.input.deadlines.delete_stopped_after,
        )) {
            self.plan.actions.push(Action::DeleteSandbox);
        }
    }

    /// Expires a sandbox that has been paused or failed for `deletePausedAfter`. The status is
    /// written first; the next reconcile deletes the rest.
    pub(super) fn stop_when_expired(&mut self, since: Timestamp) {
        if self.is_due(deadline_after(
            since,
            self.input.deadlines.delete_paused_after,
        )) {
            self.record_claim();
            self.set_phase(Phase::Stopped, Reason::Expired, None);
            self.plan.status.stopped_at = Some(self.now.into());
            self.plan.status.pod_status = Some(PodStatus::NotFound);
        }
    }
}
