//! Whether a sandbox that runs has run long enough: nothing happens in it, or its time is over.
//!
//! There is one deadline per sandbox. When it comes, the sandbox and the gateways are asked; their
//! answer is either the moment from which the next deadline counts, or the end.

use crds::sandbox::PauseReason;
use jiff::{SignedDuration, Timestamp};

use super::{Plan, Subject, deadline};
use crate::controller::facts::{Facts, Quiet};

/// An answer older than this says nothing about now.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// Pause before a question that nobody could answer is put again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// Times in objects have whole seconds. A pause has to be later than the wish to be awake, or that
/// wish would end it.
const TICK: std::time::Duration = std::time::Duration::from_secs(1);

/// How long after its announcement every gateway has heard of a pause.
const HEARD_OF: std::time::Duration = std::time::Duration::from_secs(2);

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

/// Never by guess: only what the sandbox and the gateways said after the deadline had come counts.
fn is_idle(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) -> bool {
    let Some(until) = idle_at(plan, subject, facts, now) else {
        return false;
    };
    if until > now {
        plan.look_at(Some(until));
        return false;
    }
    match facts.quiet {
        Some(quiet) if quiet.since.is_none() && age(quiet, now) < ASK_AGAIN => {
            plan.look_at(quiet.asked.checked_add(ASK_AGAIN).ok());
        }
        Some(quiet) if quiet.asked >= until && age(quiet, now) <= FRESH => return true,
        _ => plan.asks_quiet = true,
    }
    false
}

/// When the idle timeout is over, by the last sign of life that is known of.
fn idle_at(plan: &Plan, subject: &Subject<'_>, facts: &Facts, now: Timestamp) -> Option<Timestamp> {
    let heard = facts.quiet.and_then(|quiet| quiet.since);
    let ready_at = plan.status.ready_at.as_ref().map(|t| t.0);
    let last = [heard, ready_at, subject.entry.wake_at];
    let last = last.into_iter().flatten().max().unwrap_or(now);
    deadline(
        last,
        subject.deadlines.idle_timeout.map(|limit| limit.max(TICK)),
    )
}

/// What becomes of an idle pause whose Pod still lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing has happened since it was announced.
    Confirmed,
    /// Something happened at the last moment, or nobody can tell.
    CalledOff,
    /// It is not yet known.
    Open,
}

/// Looks once more, when every gateway has had the time to hear of the pause: what was let
/// through before is seen now.
pub(super) fn confirm(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    now: Timestamp,
) -> Verdict {
    let announced = plan.status.paused_at.as_ref().map_or(now, |t| t.0);
    let heard_of = deadline(announced, Some(HEARD_OF)).unwrap_or(now);
    if heard_of > now {
        plan.look_at(Some(heard_of));
        return Verdict::Open;
    }
    match facts.quiet.filter(|quiet| quiet.asked >= heard_of) {
        None => {
            plan.asks_quiet = true;
            Verdict::Open
        }
        Some(quiet) => match idle_at(plan, subject, facts, now) {
            Some(until) if quiet.since.is_some() && until <= now => Verdict::Confirmed,
            _ => Verdict::CalledOff,
        },
    }
}

fn age(quiet: Quiet, now: Timestamp) -> SignedDuration {
    now.duration_since(quiet.asked)
}
