//! Time limit of a save.

use std::time::Duration;

use tokio::time::Instant;

use super::error::StateError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Option<Instant>,
    seconds: u64,
}

impl Deadline {
    /// Limit that begins now.
    pub(super) fn after(seconds: u64) -> Self {
        Self {
            at: Instant::now().checked_add(Duration::from_secs(seconds)),
            seconds,
        }
    }

    /// For a restore: without it the sandbox could not go on.
    pub(super) const NONE: Self = Self {
        at: None,
        seconds: 0,
    };

    pub(super) fn check(&self) -> Result<(), StateError> {
        if self.at.is_some_and(|at| Instant::now() >= at) {
            return Err(StateError::Time(self.seconds));
        }
        Ok(())
    }
}
