//! Number of Sandboxes per phase and, of those that start, per reason, updated with every change.
//! Metrics read it every few seconds, and counting a hundred thousand entries each time would block
//! other readers.

use std::collections::BTreeMap;

use crds::sandbox::{Phase, SandboxStatus};

/// Phases in the order of their declaration, which is that of the counters, and their names.
const PHASES: [(Phase, &str); 7] = [
    (Phase::Pending, "Pending"),
    (Phase::Starting, "Starting"),
    (Phase::Running, "Running"),
    (Phase::Pausing, "Pausing"),
    (Phase::Paused, "Paused"),
    (Phase::Stopped, "Stopped"),
    (Phase::Failed, "Failed"),
];

/// Counts by phase, and by reason.
#[derive(Debug, Default)]
pub(super) struct StatusCounts {
    phases: [usize; PHASES.len()],
    /// In the phases `Pending` and `Starting`. Reasons stay with a count of 0, so that a metric ends
    /// there and not at its last value.
    starting: BTreeMap<&'static str, usize>,
}

impl StatusCounts {
    pub(super) fn add(&mut self, status: &SandboxStatus) {
        for count in self.counts_of(status) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, status: &SandboxStatus) {
        for count in self.counts_of(status) {
            *count = count.saturating_sub(1);
        }
    }

    fn counts_of(&mut self, status: &SandboxStatus) -> impl Iterator<Item = &mut usize> {
        let starts = matches!(status.phase, Phase::Pending | Phase::Starting);
        let reason = status.reason.filter(|_| starts);
        let by_reason = reason.map(|reason| self.starting.entry(reason.as_str()).or_default());
        let by_phase = &mut self.phases[status.phase as usize];
        [by_phase].into_iter().chain(by_reason)
    }

    pub(super) fn count(&self, phase: Phase) -> usize {
        self.phases[phase as usize]
    }

    pub(super) fn by_phase(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let counts = PHASES.iter().zip(self.phases);
        counts.map(|((_, name), count)| (*name, count))
    }

    pub(super) fn starting(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.starting
            .iter()
            .map(|(reason, count)| (*reason, *count))
    }
}

#[cfg(test)]
mod tests {
    use crds::conditions::Reason;

    use super::*;

    #[test]
    fn every_phase_has_its_own_counter() {
        for (at, (phase, _)) in PHASES.iter().enumerate() {
            assert_eq!(*phase as usize, at);
        }
    }

    #[test]
    fn reasons_are_counted_while_a_sandbox_starts() {
        let mut counts = StatusCounts::default();
        let status = |phase, reason| SandboxStatus {
            phase,
            reason: Some(reason),
            ..SandboxStatus::default()
        };
        let waits = status(Phase::Pending, Reason::Unschedulable);
        counts.add(&waits);
        counts.add(&waits);
        counts.add(&status(Phase::Starting, Reason::WaitingForCommand));
        counts.add(&status(Phase::Failed, Reason::CrashLoop));
        counts.remove(&waits);
        let all: Vec<_> = counts.starting().collect();
        assert_eq!(all, [("Unschedulable", 1), ("WaitingForCommand", 1)]);
        counts.remove(&waits);
        assert_eq!(counts.starting().next(), Some(("Unschedulable", 0)));
    }
}
