//! How many Sandboxes are in each phase, kept as they come and go: metrics ask every few seconds,
//! and counting a hundred thousand each time would hold up everybody else.

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
pub(super) struct Census([usize; PHASES.len()]);

impl Census {
    pub(super) fn add(&mut self, phase: Phase) {
        let count = &mut self.0[place(phase)];
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, phase: Phase) {
        let count = &mut self.0[place(phase)];
        *count = count.saturating_sub(1);
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PHASES.iter().zip(self.0).map(|((_, name), n)| (*name, n))
    }
}

fn place(phase: Phase) -> usize {
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
    fn every_phase_has_a_place_of_its_own() {
        for (at, (phase, _)) in PHASES.iter().enumerate() {
            assert_eq!(place(*phase), at);
        }
    }
}
