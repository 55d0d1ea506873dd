//! Time limit of a save.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::error::StateError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Option<Instant>,
    seconds: u64,
    /// Ends the work before its time.
    interruption: Option<&'static AtomicBool>,
}

impl Deadline {
    /// Limit that begins now.
    pub(super) fn after(seconds: u64) -> Self {
        Self {
            at: Instant::now().checked_add(Duration::from_secs(seconds)),
            seconds,
            interruption: None,
        }
    }

    /// The same for work that ends as soon as `flag` is set.
    pub(super) fn or_interruption(self, flag: &'static AtomicBool) -> Self {
        Self {
            interruption: Some(flag),
            ..self
        }
    }

    /// For a restore: without it the sandbox could not go on.
    pub(super) const NONE: Self = Self {
        at: None,
        seconds: 0,
        interruption: None,
    };

    pub(super) fn check(&self) -> Result<(), StateError> {
        let is_interrupted = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if self.interruption.is_some_and(is_interrupted) {
            return Err(StateError::Interrupted);
        }
        if self.at.is_some_and(|at| Instant::now() >= at) {
            return Err(StateError::Time(self.seconds));
        }
        Ok(())
    }
}
