//! Registry of idle connections. A full server closes the one that has been idle longest, so that
//! silent clients cannot keep others out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    state: Mutex<IdleState>,
    added: Notify,
}

/// Connections in the order in which they became idle.
#[derive(Debug, Default)]
struct IdleState {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// Membership of one connection. It is idle until a complete request head has arrived, and again
/// after each response.
#[derive(Debug)]
pub(super) struct IdleMember {
    all: Arc<IdleConnections>,
    closed: CancellationToken,
    place: Mutex<u64>,
}

/// Keeps a connection out of the registry during a request.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<IdleMember>);

impl IdleConnections {
    pub(super) fn join(self: &Arc<Self>) -> Arc<IdleMember> {
        let closed = CancellationToken::new();
        let place = self.add(&closed);
        Arc::new(IdleMember {
            all: Arc::clone(self),
            closed,
            place: Mutex::new(place),
        })
    }

    /// Closes a connection. Returns false if all are busy.
    pub(super) fn close_longest_idle(&self) -> bool {
        let longest = self.state.lock().connections.pop_first();
        longest.is_some_and(|(_, closed)| {
            closed.cancel();
            true
        })
    }

    /// Waits until a connection has become idle.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    fn add(&self, closed: &CancellationToken) -> u64 {
        let mut state = self.state.lock();
        let place = state.next;
        state.next += 1;
        state.connections.insert(place, closed.clone());
        self.added.notify_one();
        place
    }
}

impl IdleMember {
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    pub(super) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.leave();
        BusyGuard(Arc::clone(self))
    }

    fn leave(&self) {
        self.all.state.lock().connections.remove(&self.place.lock());
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let member = &self.0;
        *member.place.lock() = member.all.add(&member.closed);
    }
}

impl Drop for IdleMember {
    fn drop(&mut self) {
        self.leave();
    }
}
