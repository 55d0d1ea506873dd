//! Write fence: blocks writes once the renew deadline has passed.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time until which leadership is certain. It expires by itself, so that a process that was
/// suspended does not write while another one leads.
#[derive(Debug, Default)]
pub struct WriteFence(Mutex<Option<Instant>>);

impl WriteFence {
    /// Returns whether this process may write now.
    pub fn allows_writes(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    pub(in crate::kubernetes) fn extend(&self, until: Instant) {
        *self.0.lock() = Some(until);
    }

    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }
}
