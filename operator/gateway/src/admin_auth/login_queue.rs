//! Queues of password checks, which cost some ten milliseconds of a core each. Logins from an
//! address with a recent failure, or with another login in progress, use a separate queue. So a
//! flood of wrong passwords cannot delay logins from other addresses.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::serve::client_network;
use shared::recent_map::RecentMap;

/// Time that a login waits in its queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a failure is remembered.
const FAILURE_TTL: Duration = Duration::from_mins(10);
/// Maximum number of origins whose failure is remembered.
const MAX_REMEMBERED_FAILURES: usize = 4096;
/// Maximum number of logins of one origin in the queue for suspects, so that a flood leaves room
/// for other origins with a failure.
const MAX_QUEUED_PER_ORIGIN: usize = 16;

/// Both queues. Each computes one login at a time.
#[derive(Debug, Clone)]
pub(super) struct LoginQueue(Arc<LoginQueues>);

#[derive(Debug)]
struct LoginQueues {
    trusted: Arc<Semaphore>,
    suspect: Arc<Semaphore>,
    origins: Mutex<OriginState>,
}

#[derive(Debug)]
struct OriginState {
    /// Origins with a login in the trusted queue.
    busy: HashSet<IpAddr>,
    /// Logins per origin in the suspect queue.
    suspects: HashMap<IpAddr, usize>,
    /// Origins with a recent failure.
    failed: RecentMap<IpAddr, Instant>,
}

/// Permit to compute one login, held until it is dropped.
#[derive(Debug)]
pub(super) struct LoginPermit {
    slot: QueueSlot,
    _permit: OwnedSemaphorePermit,
}

/// Slot in a queue. An origin has at most one in the trusted queue.
#[derive(Debug)]
struct QueueSlot {
    queue: LoginQueue,
    origin: IpAddr,
    trusted: bool,
}

impl Default for LoginQueue {
    fn default() -> Self {
        let queue = || Arc::new(Semaphore::new(1));
        Self(Arc::new(LoginQueues {
            trusted: queue(),
            suspect: queue(),
            origins: Mutex::new(OriginState {
                busy: HashSet::new(),
                suspects: HashMap::new(),
                failed: RecentMap::new(MAX_REMEMBERED_FAILURES),
            }),
        }))
    }
}

impl LoginQueue {
    /// Waits for a permit. `None` after a timeout, or if the origin has too many queued logins.
    pub(super) async fn acquire(&self, address: IpAddr) -> Option<LoginPermit> {
        let slot = self.enqueue(client_network(address))?;
        let queue = if slot.trusted {
            &self.0.trusted
        } else {
            &self.0.suspect
        };
        let permit = timeout(QUEUE_TIMEOUT, queue.clone().acquire_owned()).await;
        Some(LoginPermit {
            slot,
            _permit: permit.ok()?.ok()?,
        })
    }

    fn enqueue(&self, origin: IpAddr) -> Option<QueueSlot> {
        let mut origins = self.0.origins.lock();
        let trusted = !origins.has_failed(origin) && origins.busy.insert(origin);
        if !trusted {
            let suspects = origins.suspects.entry(origin).or_default();
            if *suspects >= MAX_QUEUED_PER_ORIGIN {
                return None;
            }
            *suspects += 1;
        }
        Some(QueueSlot {
            queue: self.clone(),
            origin,
            trusted,
        })
    }
}

impl LoginPermit {
    /// Records the result of the login.
    pub(super) fn finish(self, proven: bool) {
        let mut origins = self.slot.queue.0.origins.lock();
        if proven {
            origins.failed.remove(&self.slot.origin);
        } else {
            origins.failed.insert(self.slot.origin, Instant::now());
        }
    }
}

impl OriginState {
    fn has_failed(&self, origin: IpAddr) -> bool {
        let failed = self.failed.get(&origin);
        failed.is_some_and(|at| at.elapsed() < FAILURE_TTL)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut origins = self.queue.0.origins.lock();
        if self.trusted {
            origins.busy.remove(&self.origin);
        } else if let Entry::Occupied(mut suspects) = origins.suspects.entry(self.origin) {
            *suspects.get_mut() -= 1;
            if *suspects.get() == 0 {
                suspects.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[tokio::test(start_paused = true)]
    async fn failed_login_does_not_delay_other_addresses() {
        let queue = LoginQueue::default();
        let (bad, good) = (address(1), address(2));
        queue.acquire(bad).await.unwrap().finish(false);
        let held = queue.acquire(bad).await.unwrap();
        let start = Instant::now();
        assert!(queue.acquire(bad).await.is_none());
        assert_eq!(start.elapsed(), QUEUE_TIMEOUT);
        queue.acquire(good).await.unwrap().finish(true);
        assert_eq!(start.elapsed(), QUEUE_TIMEOUT);
        // A correct password restores trust at once, time after FAILURE_TTL.
        held.finish(true);
        let _suspect = queue.0.suspect.clone().acquire_owned().await.unwrap();
        queue.acquire(bad).await.unwrap().finish(false);
        assert!(queue.acquire(bad).await.is_none());
        tokio::time::advance(FAILURE_TTL).await;
        assert!(queue.acquire(bad).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_of_one_address_do_not_delay_others() {
        const COST: Duration = Duration::from_millis(100);
        let (queue, start) = (LoginQueue::default(), Instant::now());
        let login = async |address| {
            let permit = queue.acquire(address).await;
            tokio::time::sleep(COST).await;
            permit.is_some()
        };
        let flood = futures::future::join_all((0..1000).map(|_| login(address(1))));
        let other = async {
            assert!(queue.acquire(address(2)).await.is_some());
            start.elapsed()
        };
        let (flood, waited) = tokio::join!(flood, other);
        assert_eq!(waited, COST);
        let served = flood.iter().filter(|served| **served).count();
        assert_eq!(served, 1 + MAX_QUEUED_PER_ORIGIN);
        assert!(queue.0.origins.lock().suspects.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn flood_does_not_starve_other_failed_addresses() {
        let queue = LoginQueue::default();
        for n in [1, 2] {
            queue.acquire(address(n)).await.unwrap().finish(false);
        }
        let login = async |address| {
            let Some(permit) = queue.acquire(address).await else {
                return false;
            };
            tokio::time::sleep(Duration::from_millis(100)).await;
            permit.finish(false);
            true
        };
        let flood = futures::future::join_all((0..1000).map(|_| login(address(1))));
        let (_, other) = tokio::join!(flood, login(address(2)));
        assert!(other);
    }
}
