//! Automatic pauses: idle timeout and maximum run time.
//!
//! There is one idle deadline per sandbox. When it has passed, sandbox server and gateways are
//! queried. Their report either moves the deadline or confirms that the sandbox is idle.

use crds::sandbox::PauseReason;
use jiff::{SignedDuration, Timestamp};

use super::decision::{Plan, PlanInput, deadline_after};
use crate::facts::{Facts, IdleReport};

/// Maximum age of an idle report that a pause may rest on.
const MAX_REPORT_AGE: SignedDuration = SignedDuration::from_secs(5);
/// Interval between idle checks while the idle time cannot be determined.
const IDLE_CHECK_RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Resolution of times in objects. A pause must be later than the wake annotation, or the
/// annotation would end it.
const TIMESTAMP_RESOLUTION: std::time::Duration = std::time::Duration::from_secs(1);

/// Time after which every gateway has seen phase `Pausing`.
const PAUSE_PROPAGATION_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// The automatic pause that is due now. Otherwise requeues at the next deadline.
pub(super) fn due_pause(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    now: Timestamp,
) -> Option<PauseReason> {
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    let awake = input
        .entry
        .wake_at
        .and_then(|at| deadline_after(at, Some(TIMESTAMP_RESOLUTION)));
    let until = deadline_after(started, input.deadlines.max_run_time);
    let until = until.map(|until| awake.map_or(until, |awake| awake.max(until)));
    if until.is_some_and(|until| until <= now) {
        return Some(PauseReason::MaxRunTime);
    }
    plan.requeue_no_later_than(until);
    is_idle(plan, input, facts, now).then_some(PauseReason::Idle)
}

/// Returns whether sandbox and gateways confirmed idleness after the deadline had passed.
fn is_idle(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) -> bool {
    let Some(until) = idle_deadline(plan, input, facts, now) else {
        return false;
    };
    if until > now {
        plan.requeue_no_later_than(Some(until));
        return false;
    }
    match facts.idle {
        Some(report)
            if report.idle_since.is_none() && age(report, now) < IDLE_CHECK_RETRY_INTERVAL =>
        {
            plan.requeue_no_later_than(
                report
                    .checked_at
                    .checked_add(IDLE_CHECK_RETRY_INTERVAL)
                    .ok(),
            );
        }
        Some(report) if report.checked_at >= until && age(report, now) <= MAX_REPORT_AGE => {
            return true;
        }
        _ => plan.check_idle = true,
    }
    false
}

/// End of the idle timeout, by the last known activity.
fn idle_deadline(
    plan: &Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    now: Timestamp,
) -> Option<Timestamp> {
    let reported = facts.idle.and_then(|report| report.idle_since);
    let ready_at = plan.status.ready_at.as_ref().map(|t| t.0);
    let last = [reported, ready_at, input.entry.wake_at];
    let last = last.into_iter().flatten().max().unwrap_or(now);
    deadline_after(
        last,
        input
            .deadlines
            .idle_timeout
            .map(|limit| limit.max(TIMESTAMP_RESOLUTION)),
    )
}

/// Decision about an idle pause whose Pod still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdlePauseDecision {
    /// No activity since the pause was written to the status.
    Confirmed,
    /// Late activity, or the idle time is unknown.
    Cancelled,
    /// The second idle check has not completed.
    Pending,
}

/// Checks idleness once more after every gateway has seen the pause: requests that were forwarded
/// before are visible now.
pub(super) fn confirm_idle_pause(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    now: Timestamp,
) -> IdlePauseDecision {
    let announced = plan.status.paused_at.as_ref().map_or(now, |t| t.0);
    let propagated_at = deadline_after(announced, Some(PAUSE_PROPAGATION_GRACE)).unwrap_or(now);
    if propagated_at > now {
        plan.requeue_no_later_than(Some(propagated_at));
        return IdlePauseDecision::Pending;
    }
    match facts
        .idle
        .filter(|report| report.checked_at >= propagated_at)
    {
        None => {
            plan.check_idle = true;
            IdlePauseDecision::Pending
        }
        Some(report) => match idle_deadline(plan, input, facts, now) {
            Some(until) if report.idle_since.is_some() && until <= now => {
                IdlePauseDecision::Confirmed
            }
            _ => IdlePauseDecision::Cancelled,
        },
    }
}

fn age(report: IdleReport, now: Timestamp) -> SignedDuration {
    now.duration_since(report.checked_at)
}
