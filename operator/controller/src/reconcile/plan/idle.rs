//! Automatic pauses: idle timeout and maximum run time.
//!
//! There is one idle deadline per sandbox. When it has passed, sandbox server and gateways are
//! queried. Their report either moves the deadline or confirms that the sandbox is idle.

use std::time::Duration;

use crds::sandbox::PauseReason;
use jiff::{SignedDuration, Timestamp};

use super::{Planner, deadline_after};

/// Maximum age of an idle report that a pause may rest on.
const MAX_REPORT_AGE: SignedDuration = SignedDuration::from_secs(5);
/// Interval between idle checks while the idle time cannot be determined.
const IDLE_CHECK_RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Resolution of times in objects. A pause must be later than the wake annotation, or the
/// annotation would end it.
const TIMESTAMP_RESOLUTION: Duration = Duration::from_secs(1);
/// Time after which every gateway has seen phase `Pausing`.
const PAUSE_PROPAGATION_GRACE: Duration = Duration::from_secs(2);

/// Decision about a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseDecision {
    /// Not an idle pause, or no activity since the pause was written to the status.
    Confirmed,
    /// Late activity, or the idle time is unknown.
    Cancelled,
    /// The second idle check has not completed.
    Pending,
}

impl Planner<'_> {
    /// The automatic pause that is due now. Otherwise requeues at the next deadline.
    pub(super) fn due_pause(&mut self) -> Option<PauseReason> {
        let awake = self.input.entry.wake_at;
        let awake = awake.and_then(|at| deadline_after(at, Some(TIMESTAMP_RESOLUTION)));
        let until = deadline_after(self.started_at(), self.input.deadlines.max_run_time);
        let until = until.map(|until| awake.map_or(until, |awake| awake.max(until)));
        if self.is_due(until) {
            return Some(PauseReason::MaxRunTime);
        }
        self.is_idle().then_some(PauseReason::Idle)
    }

    /// Returns whether sandbox and gateways confirmed idleness after the deadline had passed.
    fn is_idle(&mut self) -> bool {
        let until = self.idle_deadline();
        if !self.is_due(until) {
            return false;
        }
        if let Some(report) = self.facts.idle {
            let age = self.now.duration_since(report.checked_at);
            if report.idle_since.is_none() && age < IDLE_CHECK_RETRY_INTERVAL {
                let retry_at = report.checked_at.checked_add(IDLE_CHECK_RETRY_INTERVAL);
                self.requeue_no_later_than(retry_at.ok());
                return false;
            }
            if Some(report.checked_at) >= until && age <= MAX_REPORT_AGE {
                return true;
            }
        }
        self.plan.check_idle = true;
        false
    }

    /// End of the idle timeout, by the last known activity.
    fn idle_deadline(&self) -> Option<Timestamp> {
        let reported = self.facts.idle.and_then(|report| report.idle_since);
        let ready_at = self.plan.status.ready_at.as_ref().map(|t| t.0);
        let last = [reported, ready_at, self.input.entry.wake_at];
        let last = last.into_iter().flatten().max().unwrap_or(self.now);
        let limit = self.input.deadlines.idle_timeout;
        deadline_after(last, limit.map(|limit| limit.max(TIMESTAMP_RESOLUTION)))
    }

    /// Decides on the pause. An idle pause whose Pod still runs needs a second idle check after
    /// every gateway has seen the pause: requests that were forwarded before are visible then.
    pub(super) fn confirm_pause(&mut self) -> PauseDecision {
        let idle = self.input.entry.automatic_pause() == Some(PauseReason::Idle);
        let pod = self.facts.pod.as_ref();
        let runs = idle && self.waiting_pod().is_none();
        let Some(pod) = pod.filter(|pod| runs && pod.grace_ends_at.is_none()) else {
            return PauseDecision::Confirmed;
        };
        self.plan.probe_readiness = pod.ip.is_some();
        let announced = self
            .plan
            .status
            .paused_at
            .as_ref()
            .map_or(self.now, |t| t.0);
        let propagated_at = deadline_after(announced, Some(PAUSE_PROPAGATION_GRACE));
        let propagated_at = propagated_at.unwrap_or(self.now);
        if !self.is_due(Some(propagated_at)) {
            return PauseDecision::Pending;
        }
        let report = self
            .facts
            .idle
            .filter(|report| report.checked_at >= propagated_at);
        let Some(report) = report else {
            self.plan.check_idle = true;
            return PauseDecision::Pending;
        };
        match self.idle_deadline() {
            Some(until) if report.idle_since.is_some() && until <= self.now => {
                PauseDecision::Confirmed
            }
            _ => PauseDecision::Cancelled,
        }
    }
}
