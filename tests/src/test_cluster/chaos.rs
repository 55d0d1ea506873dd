//! Faults of Pods, scripted or random, at their start or later.

use std::time::Duration;

use super::seeded_rng::SeededRng;

/// Start of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodScript {
    #[default]
    Runs,
    /// It runs, and its command never becomes ready.
    NeverReady,
    /// Its image is being pulled, until the test heals it.
    Pulls,
    /// Its image cannot be pulled.
    CannotPull,
    /// No node takes it.
    Unschedulable,
    /// Unschedulable, because its volume is never provisioned.
    LacksVolume,
    /// A Secret that its environment names does not exist.
    LacksSecret,
    /// Its node cannot mount the executor image. It runs if it copies the executor.
    CannotMount,
    /// Its command ends without an error.
    Succeeds,
    /// Its command ends with an error.
    Fails,
    /// Deleted immediately by another client.
    Vanishes,
}

/// Interval and seed of the faults.
#[derive(Debug)]
pub(super) struct Chaos {
    rng: SeededRng,
    percent: u64,
    /// Accidents so far.
    pub(super) accidents: usize,
}

/// Fault of one Pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum InjectedFault {
    /// It does not start as it should; most of such trouble passes.
    Start(PodScript, Option<Duration>),
    Later(PodFailure, Duration),
}

/// Fault of a running Pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum PodFailure {
    Crashes,
    OutOfMemory,
    Evicted,
    NodeLost,
    Deleted,
}

/// The latest moment of a Pod's life at which something happens to it.
const MAX_FAULT_DELAY: Duration = Duration::from_hours(3);
/// The longest that trouble with a start lasts, if it passes.
const MAX_START_PROBLEM: Duration = Duration::from_mins(5);

impl Chaos {
    pub(super) fn new(seed: u64, percent: u64) -> Self {
        Self {
            rng: SeededRng::new(seed),
            percent,
            accidents: 0,
        }
    }

    /// Decides about one Pod.
    pub(super) fn next_fault(&mut self) -> Option<InjectedFault> {
        let rng = &mut self.rng;
        if !rng.percent(self.percent) {
            return None;
        }
        self.accidents += 1;
        if rng.percent(30) {
            let scripts = [
                PodScript::NeverReady,
                PodScript::CannotPull,
                PodScript::Unschedulable,
            ];
            let passes = rng.percent(80);
            let after = passes.then(|| rng.time(MAX_START_PROBLEM));
            return Some(InjectedFault::Start(rng.one_of(&scripts), after));
        }
        let failure = rng.one_of(&[
            PodFailure::Crashes,
            PodFailure::OutOfMemory,
            PodFailure::Evicted,
            PodFailure::NodeLost,
            PodFailure::Deleted,
        ]);
        Some(InjectedFault::Later(failure, rng.time(MAX_FAULT_DELAY)))
    }
}
