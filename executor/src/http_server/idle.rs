//! Registry of idle connections. A full server closes the one that has been idle longest, so that
//! silent clients cannot keep others out.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    /// Close notifications in the order in which the connections became idle.
    idle: Mutex<VecDeque<Arc<Notify>>>,
    added: Notify,
}

/// Membership of one connection. It is idle except from a complete request head to the response.
#[derive(Debug)]
pub(super) struct IdleMember {
    all: Arc<IdleConnections>,
    close: Arc<Notify>,
}

/// Keeps a connection out of the registry during a request.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<IdleMember>);

impl IdleConnections {
    pub(super) fn join(self: &Arc<Self>) -> Arc<IdleMember> {
        let member = IdleMember {
            all: Arc::clone(self),
            close: Arc::default(),
        };
        member.enter();
        Arc::new(member)
    }

    /// Closes a connection. Returns false if all are busy.
    pub(super) fn close_longest_idle(&self) -> bool {
        let longest = self.idle.lock().pop_front();
        longest.is_some_and(|close| {
            close.notify_one();
            true
        })
    }

    /// Waits until a connection has become idle.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }
}

impl IdleMember {
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    pub(super) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.leave();
        BusyGuard(Arc::clone(self))
    }

    fn enter(&self) {
        self.all.idle.lock().push_back(Arc::clone(&self.close));
        self.all.added.notify_one();
    }

    fn leave(&self) {
        let mut idle = self.all.idle.lock();
        idle.retain(|close| !Arc::ptr_eq(close, &self.close));
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.enter();
    }
}

impl Drop for IdleMember {
    fn drop(&mut self) {
        self.leave();
    }
}
