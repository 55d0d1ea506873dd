//! Whether a sandbox that runs has run long enough: nothing happens in it, or its time is over.
//!
//! There is one deadline per sandbox. When it comes, the sandbox and the gateways are asked; their
//! answer is either the moment from which the next deadline counts, or the end.

use crds::sandbox::PauseReason;
use jiff::{SignedDuration, Timestamp};

use super::{Plan, Subject, deadline};
use crate::controller::facts::Facts;

/// An answer older than this says nothing about now.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// Pause before a question that nobody could answer is put again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// Times in objects have whole seconds. A pause has to be later than the wish to be awake, or that
/// wish would end it.
const TICK: std::time::Duration = std::time::Duration::from_secs(1);

/// Why the sandbox has to pause now, if it has to; otherwise notes when to look again.
pub(super) fn is_over(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    now: Timestamp,
) -> Option<PauseReason> {
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    let awake = subject
        .entry
        .wake_at
        .and_then(|at| deadline(at, Some(TICK)));
    let until = deadline(started, subject.deadlines.max_run_time);
    let until = until.map(|until| awake.map_or(until, |awake| awake.max(until)));
    if until.is_some_and(|until| until <= now) {
        return Some(PauseReason::MaxRunTime);
    }
    plan.look_at(until);
    is_idle(plan, subject, facts, now).then_some(PauseReason::Idle)
}

/// Never by guess: only what the sandbox and the gateways said a moment ago counts.
fn is_idle(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) -> bool {
    let heard = facts.quiet.and_then(|quiet| quiet.since);
    let ready_at = plan.status.ready_at.as_ref().map(|t| t.0);
    let last = [heard, ready_at, subject.entry.wake_at];
    let last = last.into_iter().flatten().max().unwrap_or(now);
    let Some(until) = deadline(last, subject.deadlines.idle_timeout) else {
        return false;
    };
    if until > now {
        plan.look_at(Some(until));
        return false;
    }
    let age = facts.quiet.map(|quiet| now.duration_since(quiet.asked));
    match (age, heard) {
        (Some(age), Some(_)) if age <= FRESH => return true,
        (Some(age), None) if age < ASK_AGAIN => plan.look_at(now.checked_add(ASK_AGAIN - age).ok()),
        _ => plan.asks_quiet = true,
    }
    false
}
