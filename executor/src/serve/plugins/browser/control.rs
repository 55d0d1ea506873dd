//! Control of the browser by a person: the agent's actions wait until it is given back.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

#[derive(Debug, Default)]
pub(super) struct Control(Arc<watch::Sender<bool>>);

/// Gives the control back when it is dropped.
#[derive(Debug)]
pub(in crate::serve) struct ControlGuard(Arc<watch::Sender<bool>>);

impl Control {
    pub(super) fn take(&self) -> Option<ControlGuard> {
        let is_new = self
            .0
            .send_if_modified(|is_taken| !std::mem::replace(is_taken, true));
        is_new.then(|| ControlGuard(Arc::clone(&self.0)))
    }

    pub(super) fn is_taken(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until no person has the control. Returns false at the deadline.
    pub(super) async fn released(&self, deadline: Instant) -> bool {
        let mut taken = self.0.subscribe();
        let waiting = taken.wait_for(|is_taken| !is_taken);
        timeout_at(deadline, waiting)
            .await
            .is_ok_and(|free| free.is_ok())
    }
}

impl Drop for ControlGuard {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn actions_wait_while_a_person_has_control() {
        let control = Control::default();
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(control.released(soon).await);
        let guard = control.take().unwrap();
        assert!(control.take().is_none());
        assert!(!control.released(soon).await);
        drop(guard);
        assert!(control.released(Instant::now()).await);
    }
}
