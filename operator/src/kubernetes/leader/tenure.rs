//! Until when this process may act as the leader.

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long leadership is certain. It runs out by itself, so that a process that was stopped and
/// goes on later does not write in the meantime of another one.
#[derive(Debug, Default)]
pub struct Tenure(Mutex<Option<Instant>>);

impl Tenure {
    /// Whether this process may write now.
    pub fn holds(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    pub(in crate::kubernetes) fn extend(&self, until: Instant) {
        *self.0.lock() = Some(until);
    }

    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }
}
