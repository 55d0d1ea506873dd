//! What a plan says: the parts of a status that follow from others.

use crds::conditions::{ConditionType, Reason, condition};
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Action, Failure, Grace, Plan, Subject};
use crate::controller::facts::{Facts, PodFacts};

/// Longest message that the schema takes, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// How many reasons of restarts are kept.
const RESTART_REASONS: usize = 5;
/// Longest reason of a restart, in bytes.
const LONGEST_REASON: usize = 64;

impl Plan {
    /// Nothing to do, nothing to change.
    pub(super) fn begin(subject: &Subject<'_>) -> Self {
        Self {
            actions: Vec::new(),
            asks: false,
            asks_quiet: false,
            reports: true,
            lost: false,
            status: subject.entry.status.clone(),
            next: None,
        }
    }

    /// Completes the status with what follows from the rest.
    pub(super) fn close(&mut self, subject: &Subject<'_>, facts: &Facts, now: Timestamp) {
        let entry = subject.entry;
        self.status.runtime_id = Some(entry.runtime_id.clone());
        self.status.url = Some(subject.url.to_owned());
        self.status.observed_generation = Some(entry.generation);
        if self.status.phase != Phase::Failed {
            self.status.sealed_log = None;
            self.status.pool_revision = None;
        } else if self.status.pool_revision.is_none() {
            self.status.pool_revision.clone_from(&facts.pool_revision);
        }
        self.status.conditions = conditions(&self.status, &entry.status, entry.generation, now);
    }

    pub(super) fn say(&mut self, phase: Phase, reason: Reason, message: Option<String>) {
        self.status.phase = phase;
        self.status.reason = Some(reason);
        self.status.message = message.map(|text| cut(&text, LONGEST_MESSAGE));
    }

    pub(super) fn look_at(&mut self, at: Option<Timestamp>) {
        self.next = match (self.next, at) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
    }

    /// Gives the sandbox up. Its workspace stays.
    pub(super) fn fail(&mut self, reason: Reason, message: &str, kind: Failure) {
        self.say(Phase::Failed, reason, Some(message.to_owned()));
        self.status.pod_status = Some(match kind {
            Failure::CrashLoop => PodStatus::CrashLoopBackOff,
            Failure::Other => PodStatus::Failed,
        });
        self.asks = false;
        self.reports = true;
        self.next = None;
        self.forget_pod();
    }

    pub(super) fn delete(&mut self, pod: &PodFacts, grace: Grace) {
        self.actions.push(Action::DeletePod {
            uid: pod.uid.clone(),
            grace,
        });
    }

    pub(super) fn forget_pod(&mut self) {
        self.status.pod_name = None;
        self.status.pod_ip = None;
        self.status.node_name = None;
    }

    /// Notes why the command had to be started again.
    pub(super) fn note_restart(&mut self, reason: &str) {
        let reasons = &mut self.status.restarts.reasons;
        reasons.push(cut(reason, LONGEST_REASON));
        let surplus = reasons.len().saturating_sub(RESTART_REASONS);
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

/// The moment of the last transition of a condition that has this status.
pub(super) fn since(status: &SandboxStatus, kind: ConditionType, is: bool) -> Option<Timestamp> {
    let is = if is { "True" } else { "False" };
    let mut all = status.conditions.iter();
    all.find(|c| c.type_ == kind.as_str() && c.status == is)
        .map(|c| c.last_transition_time.0)
}

fn cut(text: &str, longest: usize) -> String {
    let end = text.floor_char_boundary(longest);
    text[..end].to_owned()
}
