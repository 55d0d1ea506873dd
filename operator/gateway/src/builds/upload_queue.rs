//! Turns of build contexts that are read at once. A tenant takes at most half of them, so that slow
//! uploads of one do not hold up those of all others. Uploads beyond a limit wait in their order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Build contexts that are read at once, each with a thread and less than 1 MiB, or 8 MiB if its
/// files are kept, which take up to 256 MiB of disk until the image is made.
const MAX_CONCURRENT_UPLOADS: usize = 16;
/// Those of one tenant.
const MAX_CONCURRENT_PER_TENANT: usize = 8;

#[derive(Debug)]
pub(super) struct UploadQueue {
    all: Arc<Semaphore>,
    /// Shares of the tenants that have an upload. Permits and waiters keep them alive.
    tenants: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Turn of one upload, from its share and from all.
#[derive(Debug)]
pub(super) struct UploadPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for UploadQueue {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_CONCURRENT_UPLOADS)),
            tenants: Mutex::default(),
        }
    }
}

impl UploadQueue {
    /// Waits for a turn, first in the share of the tenant. The caller bounds the wait.
    pub(super) async fn acquire(&self, tenant: &str) -> Option<UploadPermit> {
        let own = self.share(tenant).acquire_owned().await;
        let all = self.all.clone().acquire_owned().await;
        // The semaphores are never closed.
        Some(UploadPermit {
            _own: own.ok()?,
            _all: all.ok()?,
        })
    }

    fn share(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if let Some(share) = tenants.get(tenant).and_then(Weak::upgrade) {
            return share;
        }
        tenants.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(MAX_CONCURRENT_PER_TENANT));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn uploads_of_one_tenant_wait_and_leave_room_for_others() {
        let queue = UploadQueue::default();
        let acquire = |tenant| queue.acquire(tenant).now_or_never().flatten();
        let mut own: Vec<_> = (0..MAX_CONCURRENT_PER_TENANT)
            .map(|_| acquire("a").unwrap())
            .collect();
        assert!(acquire("a").is_none());
        let others: Vec<_> = (0..MAX_CONCURRENT_PER_TENANT)
            .map(|_| acquire("b").unwrap())
            .collect();
        assert!(acquire("c").is_none(), "all turns are taken");
        drop(others);
        own.pop();
        assert!(acquire("a").is_some());
    }

    #[tokio::test]
    async fn every_waiting_upload_gets_a_turn() {
        let queue = UploadQueue::default();
        let upload = async || {
            let permit = queue.acquire("a").await;
            tokio::task::yield_now().await;
            permit.is_some()
        };
        let done = join_all((0..100).map(|_| upload())).await;
        assert!(done.iter().all(|done| *done));
        queue.acquire("b").await.unwrap();
        let known = queue.tenants.lock();
        assert_eq!(known.keys().collect::<Vec<_>>(), ["b"]);
    }
}
