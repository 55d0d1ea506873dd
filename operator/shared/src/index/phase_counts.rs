//! Number of Sandboxes per phase, updated with every change. Metrics read it every few seconds, and
//! counting a hundred thousand entries each time would block other readers.

use crds::sandbox::Phase;

/// Phases and their names.
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
        let count = &mut self.0[index_of(phase)];
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, phase: Phase) {
        let count = &mut self.0[index_of(phase)];
        *count = count.saturating_sub(1);
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PHASES.iter().zip(self.0).map(|((_, name), n)| (*name, n))
    }
}

fn index_of(phase: Phase) -> usize {
    match phase {
        Phase::Pending => 0,
        Phase::Starting => 1,
        Phase::Running => 2,
        Phase::Pausing => 3,
        Phase::Paused => 4,
        Phase::Stopped => 5,
        Phase::Failed => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_own_counter() {
        for (at, (phase, _)) in PHASES.iter().enumerate() {
            assert_eq!(index_of(*phase), at);
        }
    }
}
