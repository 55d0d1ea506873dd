//! Concurrency limits of readiness probes. Short probes of starting and of older sandboxes have
//! separate permits, so that Pods that never answer cannot delay new ones. Long polls have slots;
//! a starting sandbox preempts the oldest one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Maximum number of concurrent short probes, of each age.
const MAX_SHORT_PROBES: usize = 512;
/// Maximum number of concurrent long polls.
const MAX_LONG_POLLS: usize = 1024;
/// Time after the first probe of a container run in which the sandbox uses the startup permits.
const PRIORITY_WINDOW: Duration = Duration::from_secs(10);

/// All permits and slots.
#[derive(Debug)]
pub(super) struct ProbeLimiter {
    startup_permits: Semaphore,
    regular_permits: Semaphore,
    long_polls: Arc<Mutex<LongPolls>>,
}

#[derive(Debug, Default)]
struct LongPolls {
    /// By order of arrival. A dropped sender preempts the poll.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// Slot of one long poll, free again when dropped.
#[derive(Debug)]
pub(super) struct LongPollSlot {
    number: u64,
    long_polls: Arc<Mutex<LongPolls>>,
    preemption: oneshot::Receiver<()>,
}

impl Default for ProbeLimiter {
    fn default() -> Self {
        Self {
            startup_permits: Semaphore::new(MAX_SHORT_PROBES),
            regular_permits: Semaphore::new(MAX_SHORT_PROBES),
            long_polls: Arc::default(),
        }
    }
}

impl ProbeLimiter {
    /// Waits for a permit for a short probe of a sandbox of this age. `None` never happens: the
    /// semaphores are not closed.
    pub(super) async fn short_probe_permit(&self, age: Duration) -> Option<SemaphorePermit<'_>> {
        let permits = if age < PRIORITY_WINDOW {
            &self.startup_permits
        } else {
            &self.regular_permits
        };
        permits.acquire().await.ok()
    }

    /// Slot for a long poll, if one is free or can be preempted for a sandbox of this age.
    pub(super) fn long_poll_slot(&self, age: Duration) -> Option<LongPollSlot> {
        let mut polls = self.long_polls.lock();
        if polls.held.len() >= MAX_LONG_POLLS {
            if age >= PRIORITY_WINDOW {
                return None;
            }
            polls.held.pop_first();
        }
        let (sender, preemption) = oneshot::channel();
        let number = polls.next;
        polls.next += 1;
        polls.held.insert(number, sender);
        Some(LongPollSlot {
            number,
            long_polls: self.long_polls.clone(),
            preemption,
        })
    }
}

impl LongPollSlot {
    /// Waits until another sandbox preempts the slot.
    pub(super) async fn preempted(&mut self) {
        // Nothing is sent: the receiver ends when the sender is dropped.
        let _ = (&mut self.preemption).await;
    }
}

impl Drop for LongPollSlot {
    fn drop(&mut self) {
        self.long_polls.lock().held.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTING: Duration = Duration::ZERO;

    #[tokio::test]
    async fn young_sandbox_preempts_oldest_long_poll() {
        let limiter = ProbeLimiter::default();
        let mut held: Vec<_> = (0..MAX_LONG_POLLS)
            .map(|_| limiter.long_poll_slot(STARTING).unwrap())
            .collect();
        assert!(limiter.long_poll_slot(PRIORITY_WINDOW).is_none());
        let newest = limiter.long_poll_slot(STARTING).unwrap();
        held[0].preempted().await;
        assert!(held[1].preemption.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(limiter.long_polls.lock().held.len(), MAX_LONG_POLLS);
        drop(newest);
        assert!(limiter.long_poll_slot(PRIORITY_WINDOW).is_some());
    }

    #[tokio::test]
    async fn startup_and_regular_probes_have_separate_permits() {
        let limiter = ProbeLimiter::default();
        let mut old = Vec::new();
        for _ in 0..MAX_SHORT_PROBES {
            old.push(limiter.short_probe_permit(PRIORITY_WINDOW).await);
        }
        assert!(limiter.short_probe_permit(STARTING).await.is_some());
        let more = tokio::time::timeout(
            Duration::from_millis(1),
            limiter.short_probe_permit(PRIORITY_WINDOW),
        );
        assert!(more.await.is_err());
    }
}
