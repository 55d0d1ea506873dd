//! Sandboxes with desired state `Running`: begin of a start, and replacement of lost Pods.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{PauseReason, Phase, PodStatus, Restarts};

use super::decision::{CLAIMED_POD_SILENT, CRASH_LOOP_THRESHOLD, MAX_SILENT_CLAIMS, RESIZE_FAILED};
use super::status::condition_since;
use super::{Action, FailureKind, Planner, deadline_after};
use crate::facts::{PodFacts, QuotaDecision, SourceState, WarmSupply};

impl Planner<'_> {
    /// Plans for desired state `Running`.
    pub(super) fn plan_running(&mut self) {
        if self.finishes_save() || self.gives_up_waiting_pod() {
            return;
        }
        let status = &self.input.entry.status;
        let known = status.observed_generation == Some(self.input.entry.generation);
        let restarts = self.pool_template_changed() || self.is_restart_due();
        if status.phase == Phase::Failed && known && !restarts {
            return self.plan_failed();
        }
        let starts = !matches!(status.phase, Phase::Starting | Phase::Running);
        if starts {
            self.begin_start();
        }
        // The Pod of a start whose status was not written belongs to this start. So does the Pod
        // of a cancelled pause. Any other Pod is left over from before the pause or the failure.
        let is_automatic = status
            .pause_reason
            .is_some_and(|by| by != PauseReason::Requested);
        let cancelled = status.phase == Phase::Pausing && is_automatic;
        let pod = self.facts.pod.as_ref();
        let saves = pod.is_some_and(|pod| self.has_begun_save(pod));
        let waited = self.waiting_pod().is_some();
        let kept = (cancelled && !saves) || waited || self.is_pod_of_unreported_start();
        let leftover = starts && status.phase != Phase::Pending && !kept;
        match &self.facts.pod {
            None => self.plan_missing_pod(),
            Some(pod) if leftover || pod.grace_ends_at.is_some() => self.await_pod_deletion(pod),
            Some(pod) => self.plan_existing_pod(pod),
        }
    }

    /// Returns whether the Pod is newer than the pause or failure: the status write of its
    /// start was lost.
    fn is_pod_of_unreported_start(&self) -> bool {
        let status = &self.input.entry.status;
        let rest = match status.phase {
            Phase::Paused => status.paused_at.as_ref().map(|at| at.0),
            Phase::Failed => condition_since(status, ConditionType::Failed, true),
            _ => None,
        };
        let pod = self.facts.pod.as_ref();
        let made = pod.filter(|pod| pod.created_in_pause.is_none());
        let made = made.and_then(PodFacts::owned_since);
        rest.zip(made).is_some_and(|(rest, made)| made > rest)
    }

    /// Returns whether the pool has another template than the one the sandbox failed with. Sessions
    /// are excluded: their client may have started another sandbox. So are sandboxes that keep a
    /// revision.
    fn pool_template_changed(&self) -> bool {
        let entry = self.input.entry;
        let failed_with = entry.status.pool_revision.as_ref();
        let differs = failed_with.zip(self.facts.pool_revision.as_ref());
        let follows = entry.session().is_none() && entry.status.pool.is_none();
        follows && differs.is_some_and(|(old, new)| old != new)
    }

    /// Returns whether a failed sandbox has been asked to start again. A time in the future is
    /// waited for.
    fn is_restart_due(&mut self) -> bool {
        let entry = self.input.entry;
        self.is_due(entry.wake_at.filter(|_| entry.is_restart_requested()))
    }

    /// Deletes the Pod of a failed sandbox, which waits for a changed spec or a wake.
    fn plan_failed(&mut self) {
        if let Some(pod) = &self.facts.pod {
            self.ensure_pod_deleted(pod);
        }
        if let Some(at) = condition_since(&self.plan.status, ConditionType::Failed, true) {
            self.stop_when_expired(at);
        }
    }

    /// Begins a new start: resets what the status says about the last one.
    fn begin_start(&mut self) {
        let status = &mut self.plan.status;
        // A start that is rejected repeatedly has one deadline. A start whose status was not
        // written began with its Pod.
        let waited = status.reason == Some(Reason::QuotaExceeded)
            && self.facts.quota == QuotaDecision::Admitted;
        if status.phase != Phase::Pending || waited {
            status.started_at = Some(self.now.into());
        } else if status.started_at.is_none() {
            let pod = self.facts.pod.as_ref().and_then(PodFacts::owned_since);
            status.started_at = Some(pod.unwrap_or(self.now).into());
        }
        status.restarts = Restarts::default();
        status.paused_at = None;
        status.pause_reason = None;
        status.pool_revision = None;
        status.pod_status = Some(PodStatus::NotFound);
        self.clear_pod_fields();
        self.set_phase(Phase::Starting, Reason::CreatingPod, None);
    }

    /// Plans the Pod of a sandbox that has none.
    fn plan_missing_pod(&mut self) {
        if self.facts.pool_missing {
            let pool = self.input.entry.spec.pool.as_deref().unwrap_or_default();
            let message = format!("SandboxPool {pool} does not exist");
            self.set_phase(Phase::Pending, Reason::PoolNotFound, Some(message));
            self.plan.status.started_at = None;
            self.plan.status.pod_status = Some(PodStatus::NotFound);
            return;
        }
        if self.waits_for_snapshot() || !self.is_admitted() {
            return;
        }
        // Of a Pod that vanished before the first status only the deletion is known.
        let is_first = self.input.has_no_status();
        let lost = self.plan.status.pod_name.is_some() || (is_first && self.facts.had_lost_pod);
        if lost && !self.may_replace_pod() {
            return;
        }
        let restarts = self.plan.status.restarts.count;
        if !lost && self.waits_for_warm_pod() {
            return;
        }
        if let WarmSupply::Ready(warm) = self.facts.warm.clone()
            && !self.is_unlucky_with_warm_pods()
        {
            let claim = Action::ClaimPod { warm, restarts };
            self.plan.actions.push(claim);
        } else {
            if self.input.entry.spec.workspace.is_some() {
                self.plan.actions.push(Action::CreateClaim);
            }
            self.record_claim();
            self.plan.actions.push(Action::CreatePod { restarts });
        }
        if self.plan.status.reason != Some(Reason::PodReplaced) {
            self.set_phase(Phase::Starting, Reason::CreatingPod, None);
        }
        self.plan.status.pod_name = Some(names::pod(&self.input.entry.key.name));
        self.plan.status.pod_ip = None;
        self.plan.status.node_name = None;
        self.plan.status.pod_status = Some(PodStatus::Pending);
        self.plan.write_status = self.plan.pod_lost || !is_first;
        self.enforce_start_timeout();
    }

    /// Returns whether the sandbox gets a Pod of its own because of what came of the last claims.
    fn is_unlucky_with_warm_pods(&self) -> bool {
        let losses = &self.plan.status.restarts;
        match losses.reasons.last().map(String::as_str) {
            Some(RESIZE_FAILED) => true,
            Some(CLAIMED_POD_SILENT) => losses.count >= MAX_SILENT_CLAIMS,
            _ => false,
        }
    }

    /// Returns whether the quota of its API key admits the sandbox. The start timeout applies while
    /// it is queued.
    fn is_admitted(&mut self) -> bool {
        match &self.facts.quota {
            QuotaDecision::Admitted => return true,
            QuotaDecision::Exceeded(why) => {
                self.fail(Reason::QuotaExceeded, why, FailureKind::Other);
            }
            QuotaDecision::Queued(why) => {
                self.set_phase(Phase::Pending, Reason::QuotaExceeded, Some(why.clone()));
                self.clear_pod_fields();
                self.plan.status.pod_status = Some(PodStatus::Pending);
                self.enforce_start_timeout();
            }
        }
        false
    }

    /// Returns whether the sandbox gets no Pod for now: the snapshot that it begins with is not ready.
    fn waits_for_snapshot(&mut self) -> bool {
        let (reason, message, is_missing) = match &self.facts.source {
            SourceState::None | SourceState::Ready(_) => return false,
            SourceState::Unusable(message) => {
                self.fail(Reason::SnapshotUnusable, message, FailureKind::Other);
                return true;
            }
            SourceState::Missing(message) => (Reason::SnapshotNotFound, message, true),
            SourceState::Waiting(message) => (Reason::WaitingForSnapshot, message, false),
        };
        self.set_phase(Phase::Pending, reason, Some(message.clone()));
        self.clear_pod_fields();
        if is_missing {
            self.plan.status.started_at = None;
            self.plan.status.pod_status = Some(PodStatus::NotFound);
        } else {
            self.plan.status.pod_status = Some(PodStatus::Pending);
            self.enforce_start_timeout();
        }
        true
    }

    /// Returns whether the sandbox gets no Pod for now: its pool is exhausted.
    fn waits_for_warm_pod(&mut self) -> bool {
        let WarmSupply::Exhausted { pool, max_wait } = &self.facts.warm else {
            return false;
        };
        let message = format!("no warm Pod of the pool {pool} is ready");
        match max_wait {
            _ if self.has_been_ready() => false,
            None => {
                self.fail(Reason::PoolExhausted, &message, FailureKind::Other);
                true
            }
            Some(_) if self.is_due(deadline_after(self.started_at(), *max_wait)) => false,
            Some(_) => {
                self.set_phase(Phase::Pending, Reason::WaitingForWarmPod, Some(message));
                self.clear_pod_fields();
                self.plan.status.pod_status = Some(PodStatus::Pending);
                self.enforce_start_timeout();
                true
            }
        }
    }

    /// Counts the loss of a Pod. Returns whether a replacement may be created now.
    fn may_replace_pod(&mut self) -> bool {
        if self.plan.status.reason != Some(Reason::PodReplaced) {
            self.mark_pod_lost("Deleted", "the Pod was deleted");
        }
        if self.facts.replace_at.is_some() && !self.is_due(self.facts.replace_at) {
            return false;
        }
        self.plan.status.restarts.count += 1;
        if self.plan.status.restarts.count >= CRASH_LOOP_THRESHOLD && !self.has_been_ready() {
            let message = "the Pod was lost three times before the sandbox was ready";
            self.fail(Reason::CrashLoop, message, FailureKind::CrashLoop);
            return false;
        }
        self.plan.pod_lost = true;
        true
    }

    /// Waits for a terminating Pod, which must be gone before another one is created.
    fn await_pod_deletion(&mut self, pod: &PodFacts) {
        let status = &self.plan.status;
        if status.pod_name.is_some() && status.reason != Some(Reason::PodReplaced) {
            let why = pod.disruption.as_deref();
            let cause = why.map_or_else(String::new, |why| format!(": {why}"));
            let silent = pod.node.as_ref().filter(|_| pod.node_silent);
            let silent = silent.map(|node| format!("; node {node} is not reporting"));
            let message = format!(
                "the Pod is being deleted{cause}{}",
                silent.unwrap_or_default()
            );
            self.mark_pod_lost(why.unwrap_or("Deleted"), &message);
        }
        self.plan.status.pod_status = Some(PodStatus::Pending);
        self.save_on_silent_node(pod);
        self.ensure_pod_deleted(pod);
    }
}
