//! Fields of the status that follow from others, and helpers that set them.

use crds::conditions::{ConditionType, Reason, condition};
use crds::names;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decision::{Action, DeletionGrace, FailureKind, Plan, PlanInput, deadline_after};
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
/// Longest restart reason, in bytes.
const MAX_RESTART_REASON_BYTES: usize = 64;

impl Plan {
    /// No action and no change of the status.
    pub(super) fn unchanged(input: &PlanInput<'_>) -> Self {
        Self {
            actions: Vec::new(),
            probe_readiness: false,
            check_idle: false,
            write_status: true,
            pod_lost: false,
            status: input.entry.status.clone(),
            requeue_at: None,
        }
    }

    /// Completes the status with the fields that follow from the others.
    pub(super) fn finish_status(&mut self, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
        let entry = input.entry;
        self.status.runtime_id = Some(entry.runtime_id.clone());
        self.status.url = Some(input.url.to_owned());
        self.status.observed_generation = Some(entry.generation);
        if !facts.pool_missing {
            self.status.pool_ports = match entry.spec.pool {
                Some(_) => entry.spec.ports.clone(),
                None => Vec::new(),
            };
        }
        let proves = |pod: &PodFacts| pod.supervised && pod.annotations.has_identity;
        let pod = facts.pod.as_ref().filter(|_| self.status.pod_ip.is_some());
        self.status.proves_address = pod.is_some_and(proves);
        if self.status.phase != Phase::Failed {
            self.status.sealed_log = None;
            self.status.pool_revision = None;
        } else if self.status.pool_revision.is_none() {
            self.status.pool_revision.clone_from(&facts.pool_revision);
        }
        self.status.conditions = conditions(&self.status, &entry.status, entry.generation, now);
        if facts.spec_changed && self.status.phase == Phase::Running {
            let old = &entry.status.conditions;
            let (kind, reason) = (ConditionType::RestartNeeded, Reason::SpecChanged);
            let generation = Some(entry.generation);
            let needed = condition(
                old,
                kind,
                true,
                reason,
                SPEC_CHANGED,
                generation,
                &Time(now),
            );
            self.status.conditions.push(needed);
        }
    }

    pub(super) fn set_phase(&mut self, phase: Phase, reason: Reason, message: Option<String>) {
        self.status.phase = phase;
        self.status.reason = Some(reason);
        self.status.message = message.map(|text| truncate(&text, MAX_MESSAGE_BYTES));
    }

    pub(super) fn requeue_no_later_than(&mut self, at: Option<Timestamp>) {
        self.requeue_at = match (self.requeue_at, at) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
    }

    /// Fails the sandbox. Its workspace stays.
    pub(super) fn fail(&mut self, reason: Reason, message: &str, kind: FailureKind) {
        self.set_phase(Phase::Failed, reason, Some(message.to_owned()));
        self.status.pod_status = Some(match kind {
            FailureKind::CrashLoop => PodStatus::CrashLoopBackOff,
            FailureKind::Other => PodStatus::Failed,
        });
        self.probe_readiness = false;
        self.write_status = true;
        self.requeue_at = None;
        self.clear_pod_fields();
    }

    /// Asks for the log of a sandbox that fails now, before its Pod is deleted.
    pub(super) fn capture_log_of_failure(&mut self, input: &PlanInput<'_>, facts: &Facts) {
        let fails = self.status.phase == Phase::Failed;
        if fails && input.entry.status.phase != Phase::Failed && facts.pod.is_some() {
            self.actions.insert(0, Action::CaptureLog);
        }
    }

    pub(super) fn delete_pod(&mut self, pod: &PodFacts, grace: DeletionGrace) {
        self.actions.push(Action::DeletePod {
            uid: pod.uid.clone(),
            grace,
        });
    }

    /// Deletes a Pod with its grace period, and by force if the node does not confirm in time.
    pub(super) fn ensure_pod_deleted(&mut self, pod: &PodFacts, now: Timestamp) {
        if pod.grace_ends_at.is_none() {
            self.delete_pod(pod, DeletionGrace::PodDefault);
            return;
        }
        let force_at = force_deletion_time(pod);
        if force_at.is_some_and(|until| until <= now) {
            self.delete_pod(pod, DeletionGrace::Force);
        } else {
            self.requeue_no_later_than(force_at);
        }
    }

    /// Records the loss of the Pod. Recording the same loss again changes nothing.
    pub(super) fn mark_pod_lost(&mut self, reason: &str, message: &str) {
        let before = (self.status.reason, self.status.message.take());
        self.set_phase(
            Phase::Starting,
            Reason::PodReplaced,
            Some(message.to_owned()),
        );
        if before != (self.status.reason, self.status.message.clone()) {
            self.record_restart(reason);
        }
        self.status.pod_status = Some(PodStatus::Pending);
        self.status.pod_ip = None;
    }

    /// Returns whether the sandbox was ready since its last start.
    pub(super) fn was_ready(&self) -> bool {
        match (&self.status.ready_at, &self.status.started_at) {
            (Some(ready), Some(started)) => ready >= started,
            _ => false,
        }
    }

    /// Returns whether the sandbox has been ready in this or an earlier start. It holds work then,
    /// and is retried without a limit.
    pub(super) fn has_been_ready(&self) -> bool {
        self.status.ready_at.is_some()
    }

    /// Records the PVC of a sandbox with a workspace. A recorded name stays until the PVC is
    /// deleted, also when the spec has no workspace any more.
    pub(super) fn record_claim(&mut self, input: &PlanInput<'_>) {
        if input.entry.spec.workspace.is_some() {
            let name = || names::workspace_claim(&input.entry.key.name);
            self.status.workspace_claim.get_or_insert_with(name);
        }
    }

    pub(super) fn clear_pod_fields(&mut self) {
        self.status.pod_name = None;
        self.status.pod_uid = None;
        self.status.pod_ip = None;
        self.status.node_name = None;
    }

    /// Records the reason of a restart.
    pub(super) fn record_restart(&mut self, reason: &str) {
        let reasons = &mut self.status.restarts.reasons;
        reasons.push(truncate(reason, MAX_RESTART_REASON_BYTES));
        let surplus = reasons.len().saturating_sub(MAX_RESTART_REASONS);
        reasons.drain(..surplus);
    }
}

fn conditions(
    new: &SandboxStatus,
    old: &SandboxStatus,
    generation: i64,
    now: Timestamp,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let reason = new.reason.unwrap_or(Reason::CreatingPod);
    let message = new.message.as_deref().unwrap_or_default();
    let make = |kind, status| {
        condition(
            &old.conditions,
            kind,
            status,
            reason,
            message,
            Some(generation),
            &Time(now),
        )
    };
    let mut all = vec![make(ConditionType::Ready, new.phase == Phase::Running)];
    match new.phase {
        Phase::Paused => all.push(make(ConditionType::Paused, true)),
        Phase::Failed => all.push(make(ConditionType::Failed, true)),
        _ => {}
    }
    all
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
