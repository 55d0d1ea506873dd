//! Number of Sandboxes per phase, updated with every change. Metrics read it every few seconds, and
//! counting a hundred thousand entries each time would block other readers.

use crds::sandbox::Phase;

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

/// Counts by phase.
#[derive(Debug, Default)]
pub(super) struct PhaseCounts([usize; PHASES.len()]);

impl PhaseCounts {
    pub(super) fn add(&mut self, phase: Phase) {
        let count = &mut self.0[phase as usize];
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, phase: Phase) {
        let count = &mut self.0[phase as usize];
        *count = count.saturating_sub(1);
    }

    pub(super) fn count(&self, phase: Phase) -> usize {
        self.0[phase as usize]
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PHASES.iter().zip(self.0).map(|((_, name), n)| (*name, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_own_counter() {
        for (at, (phase, _)) in PHASES.iter().enumerate() {
            assert_eq!(*phase as usize, at);
        }
    }
}
