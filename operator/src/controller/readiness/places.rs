//! How many questions are under way. Short ones, which connect and ask where a sandbox is, have
//! permits: those of young sandboxes and those of old ones apart, so that Pods which never answer
//! do not hold up the ones that are about to. Long ones, which wait for readiness, have places: a
//! young sandbox that finds none free takes the place of whoever has waited longest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Short questions under way at once, of each age.
const SHORT: usize = 512;
/// Long ones.
const LONG: usize = 1024;
/// How long a sandbox is young, from the first question in a run of its container.
const YOUTH: Duration = Duration::from_secs(10);

/// All permits and places.
#[derive(Debug)]
pub(super) struct Places {
    young: Semaphore,
    old: Semaphore,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By the order in which they came.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// A place to wait in. Free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    waiting: Arc<Mutex<Waiting>>,
    taken: oneshot::Receiver<()>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            young: Semaphore::new(SHORT),
            old: Semaphore::new(SHORT),
            waiting: Arc::default(),
        }
    }
}

impl Places {
    /// Waits for a permit for a short question about a sandbox of this age. `None` only if there
    /// are none any more, which is never.
    pub(super) async fn permit(&self, age: Duration) -> Option<SemaphorePermit<'_>> {
        let permits = if age < YOUTH { &self.young } else { &self.old };
        permits.acquire().await.ok()
    }

    /// A place for a long question, if there is one for a sandbox of this age.
    pub(super) fn place(&self, age: Duration) -> Option<Place> {
        let mut waiting = self.waiting.lock();
        if waiting.held.len() >= LONG {
            if age >= YOUTH {
                return None;
            }
            // Its owner notices that the sender is gone.
            waiting.held.pop_first();
        }
        let (sender, taken) = oneshot::channel();
        let number = waiting.next;
        waiting.next += 1;
        waiting.held.insert(number, sender);
        Some(Place {
            number,
            waiting: self.waiting.clone(),
            taken,
        })
    }
}

impl Place {
    /// Waits until somebody else takes the place.
    pub(super) async fn lost(&mut self) {
        // Nothing is ever sent: this ends when the sender is dropped.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.lock().held.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Duration = Duration::ZERO;

    #[tokio::test]
    async fn the_young_take_the_oldest_place_and_the_old_take_none() {
        let places = Places::default();
        let mut held: Vec<_> = (0..LONG).map(|_| places.place(YOUNG).unwrap()).collect();
        assert!(places.place(YOUTH).is_none());
        let newest = places.place(YOUNG).unwrap();
        held[0].lost().await;
        assert!(held[1].taken.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(places.waiting.lock().held.len(), LONG);
        drop(newest);
        assert!(places.place(YOUTH).is_some());
    }

    #[tokio::test]
    async fn permits_of_old_and_young_are_apart() {
        let places = Places::default();
        let mut old = Vec::new();
        for _ in 0..SHORT {
            old.push(places.permit(YOUTH).await);
        }
        assert!(places.permit(YOUNG).await.is_some());
        let more = tokio::time::timeout(Duration::from_millis(1), places.permit(YOUTH));
        assert!(more.await.is_err());
    }
}
