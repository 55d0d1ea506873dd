//! The state machine: from what is wanted and what is true to what to do, what to say, and when
//! to look again. Pure, so that every case of it is a unit test.

mod attend;
mod quiet;
mod rest;
mod run;
mod say;
#[cfg(test)]
mod tests;
mod wait;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, PodStatus, SandboxStatus};
use jiff::{SignedDuration, Timestamp};

use super::config::Deadlines;
use super::facts::Facts;
use crate::index::Entry;

/// One sandbox, as a decision sees it.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The object; its spec has what the pool supplies.
    pub entry: &'a Entry,
    pub deadlines: Deadlines,
    pub url: &'a str,
    /// A port that must accept before an unsupervised sandbox counts as ready.
    pub port: Option<u16>,
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes the workspace's volume claim, if there is none.
    CreateClaim,
    /// Makes the Pod; the number is that of the restarts before it.
    CreatePod {
        restarts: u32,
    },
    DeletePod {
        uid: String,
        grace: Grace,
    },
    DeleteClaim,
    /// Takes away what a Pod without a supervisor was given to start with.
    DeleteSecret,
    DeleteSandbox,
}

/// How a Pod ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// As the Pod says.
    Own,
    /// Without waiting for its node, which is lost.
    None,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Whether the sandbox is to be asked if it is ready.
    pub asks: bool,
    /// Whether it is to be found out since when nothing happens in the sandbox.
    pub asks_quiet: bool,
    /// Whether the status is worth a write of its own. What is not is only the first word of a new
    /// start, which the next one soon replaces.
    pub reports: bool,
    /// A Pod was lost; what replaces it may have to wait.
    pub lost: bool,
    pub status: SandboxStatus,
    /// When to look again, even if nothing changes.
    pub next: Option<Timestamp>,
}

/// Why something planned could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub message: String,
    /// Trying again is futile.
    pub fatal: bool,
}

/// Decides.
pub fn plan(subject: &Subject<'_>, facts: &Facts, now: Timestamp) -> Plan {
    let mut plan = Plan::begin(subject);
    if subject.entry.deleting {
        return plan;
    }
    match subject.entry.wanted() {
        DesiredState::Running => run::decide(&mut plan, subject, facts, now),
        DesiredState::Paused => rest::pause_or_go_on(&mut plan, subject, facts, now),
        DesiredState::Stopped => rest::stop(&mut plan, subject, facts, now),
    }
    plan.close(subject, facts, now);
    plan
}

/// The status if a plan could not be carried out.
pub fn refuse(
    subject: &Subject<'_>,
    facts: &Facts,
    refusal: &Refusal,
    now: Timestamp,
) -> SandboxStatus {
    let mut plan = Plan::begin(subject);
    plan.status.pool_revision = None;
    if refusal.fatal {
        plan.fail(refusal.reason, &refusal.message, Failure::Other);
    } else {
        let started = matches!(plan.status.phase, Phase::Starting | Phase::Running);
        let phase = if started {
            Phase::Starting
        } else {
            Phase::Pending
        };
        plan.say(phase, refusal.reason, Some(refusal.message.clone()));
        if started {
            // The Pod that it had is gone, or nothing would have been asked for.
            plan.status.pod_status = Some(PodStatus::Pending);
            plan.status.pod_ip = None;
            plan.status.node_name = None;
        }
        plan.status.started_at.get_or_insert(now.into());
        plan.status.pod_status.get_or_insert(PodStatus::NotFound);
    }
    plan.close(subject, facts, now);
    plan.status
}

/// Why a sandbox was given up, as clients distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    CrashLoop,
    Other,
}

/// `start + limit`, if there is a limit.
fn deadline(start: Timestamp, limit: Option<std::time::Duration>) -> Option<Timestamp> {
    let limit = SignedDuration::try_from(limit?).ok()?;
    start.checked_add(limit).ok()
}
