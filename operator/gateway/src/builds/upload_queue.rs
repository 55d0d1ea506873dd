//! Concurrency limits of build contexts that are read. A tenant holds at most half of the permits,
//! so that its slow uploads do not hold up those of others. Uploads beyond a limit wait in their
//! order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Build contexts that are read at once, each with a thread and less than 1 MiB, or 8 MiB if its
/// files are kept, which take up to 256 MiB of disk until the image is made.
const MAX_CONCURRENT_UPLOADS: usize = 16;
/// Build contexts of one tenant that are read at once.
const MAX_CONCURRENT_PER_TENANT: usize = 8;

#[derive(Debug)]
pub(super) struct UploadQueue {
    all: Arc<Semaphore>,
    /// Semaphores of the tenants that have an upload. Permits and waiters keep them alive.
    tenants: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Permits of one upload: of its tenant and of the process.
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
    /// Waits for both permits, that of the tenant first. The caller bounds the wait.
    pub(super) async fn acquire(&self, tenant: &str) -> Option<UploadPermit> {
        let own = self.tenant_semaphore(tenant).acquire_owned().await;
        let all = self.all.clone().acquire_owned().await;
        // The semaphores are never closed.
        Some(UploadPermit {
            _own: own.ok()?,
            _all: all.ok()?,
        })
    }

    fn tenant_semaphore(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if let Some(semaphore) = tenants.get(tenant).and_then(Weak::upgrade) {
            return semaphore;
        }
        tenants.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(MAX_CONCURRENT_PER_TENANT));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&semaphore));
        semaphore
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
        assert!(acquire("c").is_none(), "all permits are taken");
        drop(others);
        own.pop();
        assert!(acquire("a").is_some());
    }

    #[tokio::test]
    async fn every_waiting_upload_gets_a_permit() {
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
