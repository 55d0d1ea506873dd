//! The place of a connection among all that may be open. It is given back with the last byte, and
//! counted for whoever watches.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::origins::Share;
use crate::metrics::Raised;

/// All places.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    taken: Gauge,
}

/// One place; free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    _share: Share,
    _taken: Raised,
}

impl Slots {
    pub(super) fn new(count: usize, taken: Gauge) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            taken,
        }
    }

    /// Waits until a place is free.
    pub(super) async fn free(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().acquire_owned().await.ok()
    }

    /// Gives a free place to a connection.
    pub(super) fn take(&self, permit: OwnedSemaphorePermit, share: Share) -> Slot {
        Slot {
            _permit: permit,
            _share: share,
            _taken: Raised::new(&self.taken),
        }
    }
}
