//! Fields of the status that follow from others, and helpers that set them.

use crds::conditions::{ConditionType, Reason, condition};
use crds::contract::persistence::PersistenceLevel;
use crds::names;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Action, DeletionGrace, FailureKind, Plan, PlanInput, Planner, deadline_after};
use crate::facts::{Facts, PodFacts};

/// Message of the condition `RestartNeeded`.
const SPEC_CHANGED: &str =
    "the spec has changed since the Pod was created: pause and resume the sandbox to apply it";
/// Time after the grace period after which the node of a terminating Pod is taken for lost
/// (`docs/decisions/015-force-delete-lost-pods.md`).
const NODE_LOST_GRACE: std::time::Duration = std::time::Duration::from_secs(30);
/// Longest message that the schema allows, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Number of restart reasons that the status keeps.
const MAX_RESTART_REASONS: usize = 5;
/// Reason of a restart whose end the kubelet has not reported.
pub(super) const UNKNOWN_END: &str = "Unknown";
/// Longest restart reason, in bytes.
const MAX_RESTART_REASON_BYTES: usize = 64;

impl<'a> Planner<'a> {
    /// No action and no change of the status.
    pub(super) fn new(input: &'a PlanInput<'a>, facts: &'a Facts, now: Timestamp) -> Self {
        let plan = Plan {
            actions: Vec::new(),
            probe_readiness: false,
            check_idle: false,
            save: false,
            write_status: true,
            pod_lost: false,
            status: input.entry.status.clone(),
            requeue_at: None,
        };
        Self {
            input,
            facts,
            now,
            plan,
        }
    }

    /// Completes the status with the fields that follow from the others.
    pub(super) fn finish_status(&mut self) {
        let (entry, facts, status) = (self.input.entry, self.facts, &mut self.plan.status);
        status.runtime_id = Some(entry.runtime_id.clone());
        status.url = Some(self.input.url.to_owned());
        status.observed_generation = Some(entry.generation);
        if !facts.pool_missing {
            status.pool_ports = match entry.spec.pool {
                Some(_) => entry.spec.ports.clone(),
                None => Vec::new(),
            };
            status.plugins = self.input.plugins.to_vec();
        }
        let pod = facts.pod.as_ref().filter(|_| status.pod_ip.is_some());
        status.proves_address = pod.is_some_and(|pod| pod.supervised && pod.identity.is_some());
        if status.phase != Phase::Failed {
            status.sealed_log = None;
            status.pool_revision = None;
        } else if status.pool_revision.is_none() {
            status.pool_revision.clone_from(&facts.pool_revision);
        }
        self.plan.status.conditions = self.conditions();
    }

    fn conditions(&self) -> Vec<Condition> {
        let (entry, status) = (self.input.entry, &self.plan.status);
        let (generation, now) = (Some(entry.generation), Time(self.now));
        let make = |kind, is_true, reason, message: &str| {
            let old = &entry.status.conditions;
            condition(old, kind, is_true, reason, message, generation, &now)
        };
        let reason = status.reason.unwrap_or(Reason::CreatingPod);
        let message = status.message.as_deref().unwrap_or_default();
        let is_ready = status.phase == Phase::Running;
        let mut all = vec![make(ConditionType::Ready, is_ready, reason, message)];
        match status.phase {
            Phase::Paused => all.push(make(ConditionType::Paused, true, reason, message)),
            Phase::Failed => all.push(make(ConditionType::Failed, true, reason, message)),
            Phase::Running if self.facts.spec_changed => {
                let kind = ConditionType::RestartNeeded;
                all.push(make(kind, true, Reason::SpecChanged, SPEC_CHANGED));
            }
            _ => {}
        }
        all
    }

    pub(super) fn set_phase(&mut self, phase: Phase, reason: Reason, message: Option<String>) {
        self.plan.status.phase = phase;
        self.plan.status.reason = Some(reason);
        self.plan.status.message = message.map(|text| truncate(&text, MAX_MESSAGE_BYTES));
    }

    pub(super) fn requeue_no_later_than(&mut self, at: Option<Timestamp>) {
        let known = self.plan.requeue_at;
        self.plan.requeue_at = known.into_iter().chain(at).min();
    }

    /// Returns whether a time has come. Requeues at one that is still to come.
    pub(super) fn is_due(&mut self, at: Option<Timestamp>) -> bool {
        let is_due = at.is_some_and(|at| at <= self.now);
        self.requeue_no_later_than(at.filter(|_| !is_due));
        is_due
    }

    /// Fails the sandbox. Its workspace stays.
    pub(super) fn fail(&mut self, reason: Reason, message: &str, kind: FailureKind) {
        self.set_phase(Phase::Failed, reason, Some(message.to_owned()));
        self.plan.status.pod_status = Some(match kind {
            FailureKind::CrashLoop => PodStatus::CrashLoopBackOff,
            FailureKind::Other => PodStatus::Failed,
        });
        self.plan.probe_readiness = false;
        self.plan.write_status = true;
        self.plan.requeue_at = None;
        self.clear_pod_fields();
    }

    /// Asks for the log of a sandbox that fails now, before its Pod is deleted.
    pub(super) fn capture_log_of_failure(&mut self) {
        let failed = |status: &SandboxStatus| status.phase == Phase::Failed;
        let fails = failed(&self.plan.status) && !failed(&self.input.entry.status);
        if fails && self.facts.pod.is_some() {
            self.plan.actions.insert(0, Action::CaptureLog);
        }
    }

    pub(super) fn delete_pod(&mut self, pod: &PodFacts, grace: DeletionGrace) {
        let uid = pod.uid.clone();
        self.plan.actions.push(Action::DeletePod { uid, grace });
    }

    /// Deletes a Pod with its grace period, and by force if the node does not confirm in time.
    pub(super) fn ensure_pod_deleted(&mut self, pod: &PodFacts) {
        if pod.grace_ends_at.is_none() {
            self.delete_pod(pod, DeletionGrace::PodDefault);
        } else if self.is_due(force_deletion_time(pod)) {
            self.delete_pod(pod, DeletionGrace::Force);
        }
    }

    /// Records the loss of the Pod. Recording the same loss again changes nothing.
    pub(super) fn mark_pod_lost(&mut self, reason: &str, message: &str) {
        let before = (self.plan.status.reason, self.plan.status.message.take());
        self.set_phase(
            Phase::Starting,
            Reason::PodReplaced,
            Some(message.to_owned()),
        );
        if before != (self.plan.status.reason, self.plan.status.message.clone()) {
            self.record_restart(reason);
        }
        self.plan.status.pod_status = Some(PodStatus::Pending);
        self.plan.status.pod_ip = None;
    }

    /// Begin of this start.
    pub(super) fn started_at(&self) -> Timestamp {
        self.plan
            .status
            .started_at
            .as_ref()
            .map_or(self.now, |t| t.0)
    }

    /// Returns whether the sandbox was ready since its last start.
    pub(super) fn was_ready(&self) -> bool {
        match (&self.plan.status.ready_at, &self.plan.status.started_at) {
            (Some(ready), Some(started)) => ready >= started,
            _ => false,
        }
    }

    /// Returns whether the sandbox has been ready in this or an earlier start. It holds work then,
    /// and is retried without a limit.
    pub(super) fn has_been_ready(&self) -> bool {
        self.plan.status.ready_at.is_some()
    }

    /// Records the PVC of a sandbox with a workspace. A recorded name stays until the PVC is
    /// deleted, also when the spec has no workspace any more.
    pub(super) fn record_claim(&mut self) {
        if self.input.entry.spec.workspace.is_some() {
            let warm = self.facts.pod.as_ref().filter(|pod| pod.was_warm());
            let owner = warm.map_or(&self.input.entry.key.name, |pod| &pod.name);
            let status = &mut self.plan.status;
            if status.workspace_claim.is_none() {
                status.workspace_claim = Some(names::workspace_claim(owner));
                status.has_state_volume = self.input.level > PersistenceLevel::Workspace;
            }
        }
    }

    pub(super) fn clear_pod_fields(&mut self) {
        let status = &mut self.plan.status;
        status.pod_name = None;
        status.pod_uid = None;
        status.pod_ip = None;
        status.node_name = None;
        status.warm = false;
    }

    /// Records the reason of a restart.
    pub(super) fn record_restart(&mut self, reason: &str) {
        let reasons = &mut self.plan.status.restarts.reasons;
        reasons.push(truncate(reason, MAX_RESTART_REASON_BYTES));
        let surplus = reasons.len().saturating_sub(MAX_RESTART_REASONS);
        reasons.drain(..surplus);
    }

    /// Records the reason of the last restart, if it was not known before.
    pub(super) fn complete_restart(&mut self, reason: &str) {
        let last = self.plan.status.restarts.reasons.last_mut();
        if let Some(last) = last.filter(|last| *last == UNKNOWN_END) {
            *last = truncate(reason, MAX_RESTART_REASON_BYTES);
        }
    }
}

/// Time of the last transition of a condition, if it has this status.
pub(super) fn condition_since(
    status: &SandboxStatus,
    kind: ConditionType,
    expected: bool,
) -> Option<Timestamp> {
    let expected = if expected { "True" } else { "False" };
    let mut all = status.conditions.iter();
    all.find(|c| c.type_ == kind.as_str() && c.status == expected)
        .map(|c| c.last_transition_time.0)
}

/// Time at which a terminating Pod counts as lost with its node.
pub(in crate::reconcile) fn force_deletion_time(pod: &PodFacts) -> Option<Timestamp> {
    deadline_after(pod.grace_ends_at?, Some(NODE_LOST_GRACE))
}

fn truncate(text: &str, longest: usize) -> String {
    let end = text.floor_char_boundary(longest);
    text[..end].to_owned()
}
