//! Queues of password checks, which cost some ten milliseconds of a core each. Logins from an
//! address with a recent failure, or with another login in progress, use a separate queue. So a
//! flood of wrong passwords cannot delay logins from other addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::client_address::client_network;
use crate::keyed_limit::{KeyedLimiter, KeyedPermit};
use shared::recent_map::RecentMap;

const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
const FAILURE_TTL: Duration = Duration::from_mins(10);
const MAX_REMEMBERED_FAILURES: usize = 4096;
/// Maximum logins of one origin in the queue for suspects: a flood leaves room for other origins.
const MAX_QUEUED_PER_ORIGIN: usize = 16;

/// Both queues. Each computes one login at a time.
#[derive(Debug, Clone)]
pub(super) struct LoginQueue {
    trusted: Queue,
    suspect: Queue,
    failed: Arc<Mutex<RecentMap<IpAddr, Instant, MAX_REMEMBERED_FAILURES>>>,
}

#[derive(Debug, Clone)]
struct Queue {
    turn: Arc<Semaphore>,
    origins: KeyedLimiter<IpAddr>,
}

#[derive(Debug)]
pub(super) struct LoginPermit {
    queue: LoginQueue,
    origin: IpAddr,
    _slot: KeyedPermit<IpAddr>,
    _turn: OwnedSemaphorePermit,
}

impl Default for LoginQueue {
    fn default() -> Self {
        let queue = || Queue {
            turn: Arc::new(Semaphore::new(1)),
            origins: KeyedLimiter::default(),
        };
        Self {
            trusted: queue(),
            suspect: queue(),
            failed: Arc::default(),
        }
    }
}

impl LoginQueue {
    /// Waits for a permit. `None` after a timeout, or if the origin has too many queued logins. An
    /// origin has at most one login in the trusted queue.
    pub(super) async fn acquire(&self, address: IpAddr) -> Option<LoginPermit> {
        let origin = client_network(address);
        let trusted = self.trusted.origins.acquire(&origin, 1);
        let (queue, slot) = if let Some(slot) = trusted.filter(|_| !self.has_failed(origin)) {
            (&self.trusted, slot)
        } else {
            let queue = &self.suspect;
            (
                queue,
                queue.origins.acquire(&origin, MAX_QUEUED_PER_ORIGIN)?,
            )
        };
        let turn = timeout(QUEUE_TIMEOUT, queue.turn.clone().acquire_owned()).await;
        Some(LoginPermit {
            queue: self.clone(),
            origin,
            _slot: slot,
            _turn: turn.ok()?.ok()?,
        })
    }

    fn has_failed(&self, origin: IpAddr) -> bool {
        let failed = self.failed.lock();
        failed
            .get(&origin)
            .is_some_and(|at| at.elapsed() < FAILURE_TTL)
    }
}

impl LoginPermit {
    pub(super) fn finish(self, proven: bool) {
        let mut failed = self.queue.failed.lock();
        if proven {
            failed.remove(&self.origin);
        } else {
            failed.insert(self.origin, Instant::now());
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
        let _suspect = queue.suspect.turn.clone().acquire_owned().await.unwrap();
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
