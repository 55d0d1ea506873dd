//! Slots of open client connections, with the memory that each connection may take. A slot is
//! released when its connection closes; the gauge counts them.

use std::io;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address_limit::AddressPermit;
use crate::client_memory::{CONNECTION_BYTES, ClientMemory, MemoryPermit};
use shared::metrics::{GatewayMetrics, GaugeGuard};

/// All slots.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots {
    free: Arc<Semaphore>,
    memory: ClientMemory,
    metrics: Arc<GatewayMetrics>,
}

/// A free slot, and the memory of a connection.
pub(super) type FreeSlot = (OwnedSemaphorePermit, MemoryPermit);

/// One slot, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    _address_permit: AddressPermit,
    _open: GaugeGuard,
    memory: MemoryPermit,
    overloads: Counter,
}

impl ConnectionSlots {
    pub(super) fn new(count: usize, memory: ClientMemory, metrics: Arc<GatewayMetrics>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            memory,
            metrics,
        }
    }

    /// Takes a slot, if one is free and its memory is left.
    pub(super) fn try_acquire(&self) -> Option<FreeSlot> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some((permit, self.memory.acquire(CONNECTION_BYTES)?))
    }

    /// Assigns a free slot to a connection.
    pub(super) fn assign(
        &self,
        (permit, memory): FreeSlot,
        address_permit: AddressPermit,
    ) -> ConnectionSlot {
        ConnectionSlot {
            _permit: permit,
            _address_permit: address_permit,
            _open: GaugeGuard::new(&self.metrics.connections),
            memory,
            overloads: self.metrics.overloads.clone(),
        }
    }
}

impl ConnectionSlot {
    /// Takes more memory, up to `bytes`; fails if too little is left.
    pub(super) fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        if self.memory.grow_to(bytes) {
            return Ok(());
        }
        self.overloads.inc();
        Err(io::Error::from(io::ErrorKind::OutOfMemory))
    }

    /// Gives back all memory but `bytes`.
    pub(super) fn release_to(&mut self, bytes: usize) {
        self.memory.shrink_to(bytes);
    }
}
