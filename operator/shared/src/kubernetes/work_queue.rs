//! Keyed, delayed queue between watches and reconciles.
//!
//! A key waits at most once, its earliest deadline wins, and it is not handed out while it is
//! processing. So memory is bounded by the number of objects, and many events of one object cost
//! one reconcile. Reasons against kube's scheduler: `docs/decisions/014-custom-work-queue.md`.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::backoff::jittered;

const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
/// Maximum backoff if the object causes the failures.
pub const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Maximum backoff if the API server fails; the number of concurrent reconciles bounds its load.
pub const MAX_OUTAGE_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct WorkQueue<K> {
    state: Mutex<QueueState<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct QueueState<K> {
    order: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    /// Keys that are handed out before all others that are due.
    urgent: BTreeSet<K>,
    /// Keys in reconciles, with the deadline if they were added again meanwhile.
    processing: HashMap<K, Option<Instant>>,
    /// Consecutive failures.
    failures: HashMap<K, u32>,
    open: bool,
    last_taken_at: Instant,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(QueueState {
                order: BTreeSet::new(),
                due: HashMap::new(),
                urgent: BTreeSet::new(),
                processing: HashMap::new(),
                failures: HashMap::new(),
                open: false,
                last_taken_at: Instant::now(),
            }),
            changed: Notify::new(),
        }
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord> WorkQueue<K> {
    /// Starts to accept keys. A closed queue drops them: keys of deleted objects would stay.
    pub fn open(&self) {
        self.state.lock().open = true;
    }

    /// Adds a key that is due now.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Adds a key that is due now, before all others: work that has begun is finished first, so that
    /// a burst does not make everyone wait until its end.
    pub fn add_first(&self, key: K) {
        let mut state = self.state.lock();
        if state.open {
            state.urgent.insert(key.clone());
            state.add(key, Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Adds a key that is due at a time; an earlier deadline stays.
    pub fn add_at(&self, key: K, at: Instant) {
        let mut state = self.state.lock();
        if state.open {
            state.add(key, at);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Makes all keys due earlier by this duration.
    pub fn advance_deadlines(&self, by: Duration) {
        let mut state = self.state.lock();
        let earlier = |at: Instant| at.checked_sub(by).unwrap_or_else(Instant::now);
        let QueueState {
            order,
            due,
            processing: reconciling,
            ..
        } = &mut *state;
        for at in due.values_mut().chain(reconciling.values_mut().flatten()) {
            *at = earlier(*at);
        }
        *order = due.iter().map(|(key, at)| (*at, key.clone())).collect();
        drop(state);
        self.changed.notify_one();
    }

    /// Number of keys that are due and not handed out.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        let state = self.state.lock();
        state.order.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// Returns whether a key is handed out, or due to be.
    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        let first = state.order.first();
        !state.processing.is_empty() || first.is_some_and(|(at, _)| *at <= Instant::now())
    }

    /// Time for which no key was taken although one was due.
    pub fn stalled_for(&self) -> Duration {
        let state = self.state.lock();
        let since = state
            .order
            .first()
            .map(|(at, _)| (*at).max(state.last_taken_at));
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns the next due key and its deadline. The key is not handed out again before
    /// [`Self::done`] or [`Self::requeue_with_backoff`].
    pub async fn next(&self) -> (K, Instant) {
        loop {
            let first = match self.state.lock().take(Instant::now()) {
                Ok(taken) => return taken,
                Err(first) => first,
            };
            match first {
                Some(at) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// Finishes a reconcile that succeeded.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.failures.remove(key);
        state.finish(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Finishes a reconcile that failed. The next one follows after a backoff of at most `max`.
    /// Keys added meanwhile wait as well, or a failing object would be retried by its own events.
    pub fn requeue_with_backoff(&self, key: &K, max: Duration) {
        let mut state = self.state.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        *failures += 1;
        let backoff = backoff(*failures, max);
        state.processing.remove(key);
        state.urgent.remove(key);
        state.add(key.clone(), Instant::now() + backoff);
        drop(state);
        self.changed.notify_one();
    }
}

impl<K: Clone + Eq + Hash + Ord> QueueState<K> {
    fn add(&mut self, key: K, at: Instant) {
        if let Some(again) = self.processing.get_mut(&key) {
            *again = Some(again.map_or(at, |other| other.min(at)));
            return;
        }
        match self.due.get(&key) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.order.remove(&(*known, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Takes the first key if it is due; otherwise returns its deadline.
    fn take(&mut self, now: Instant) -> Result<(K, Instant), Option<Instant>> {
        let is_due = |key: &&K| self.due.get(key).is_some_and(|at| *at <= now);
        let urgent = self.urgent.iter().find(is_due).cloned();
        let first = urgent.or_else(|| self.order.first().map(|(_, key)| key.clone()));
        let Some((key, at)) = first.and_then(|key| self.due.get_key_value(&key)) else {
            return Err(None);
        };
        if *at > now {
            return Err(Some(*at));
        }
        let (key, at) = (key.clone(), *at);
        self.due.remove(&key);
        self.order.remove(&(at, key.clone()));
        self.urgent.remove(&key);
        self.processing.insert(key.clone(), None);
        self.last_taken_at = now;
        Ok((key, at))
    }

    fn finish(&mut self, key: &K) {
        if let Some(Some(at)) = self.processing.remove(key) {
            self.add(key.clone(), at);
        }
    }
}

fn backoff(failures: u32, max: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    jittered(INITIAL_BACKOFF.saturating_mul(doubled).min(max))
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const SHORT_WAIT: Duration = Duration::from_millis(1);

    fn opened() -> WorkQueue<u8> {
        let queue = WorkQueue::default();
        queue.open();
        queue
    }

    async fn idle(queue: &WorkQueue<u8>) -> bool {
        timeout(SHORT_WAIT, queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn key_waits_once_and_earliest_deadline_wins() {
        let queue = opened();
        let start = Instant::now();
        queue.add_at(1, start + Duration::from_secs(10));
        queue.add_at(1, start + Duration::from_secs(5));
        queue.add_at(1, start + Duration::from_secs(20));
        assert_eq!(queue.next().await.0, 1);
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        queue.done(&1);
        assert!(idle(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_keys_are_handed_out_first() {
        let queue = opened();
        for key in 1..=3 {
            queue.add(key);
        }
        assert_eq!(queue.next().await.0, 1);
        queue.add_first(1);
        queue.add_first(3);
        // One of them is still being processed.
        assert_eq!(queue.next().await.0, 3);
        queue.done(&1);
        assert_eq!(queue.next().await.0, 1);
        queue.add_first(1);
        queue.requeue_with_backoff(&1, MAX_BACKOFF);
        assert_eq!(queue.next().await.0, 2);
        assert_eq!(queue.next().await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn key_is_not_handed_out_while_processing() {
        let queue = opened();
        queue.add(1);
        assert_eq!(queue.next().await.0, 1);
        queue.add(1);
        assert!(idle(&queue).await);
        queue.done(&1);
        assert_eq!(queue.next().await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_backoff_and_success_resets_it() {
        let queue = opened();
        queue.add(1);
        let mut waits = Vec::new();
        for _ in 0..15 {
            let start = Instant::now();
            queue.next().await;
            waits.push(start.elapsed());
            queue.add(1);
            queue.requeue_with_backoff(&1, MAX_BACKOFF);
        }
        assert!(waits[1] >= INITIAL_BACKOFF / 2 && waits[1] <= INITIAL_BACKOFF + SHORT_WAIT);
        assert!(waits[14] >= MAX_BACKOFF / 2 && waits[14] <= MAX_BACKOFF + SHORT_WAIT);
        queue.next().await;
        queue.done(&1);
        queue.add(1);
        queue.next().await;
        queue.requeue_with_backoff(&1, MAX_BACKOFF);
        let start = Instant::now();
        queue.next().await;
        assert!(start.elapsed() <= INITIAL_BACKOFF + SHORT_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn add_wakes_waiting_worker() {
        let queue = opened();
        let ((key, _), ()) = tokio::join!(queue.next(), async { queue.add(7) });
        assert_eq!(key, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn stall_counts_only_due_keys() {
        let queue = opened();
        queue.add_at(1, Instant::now() + Duration::from_mins(1));
        queue.add(2);
        queue.add(3);
        assert_eq!(queue.depth(), 2);
        advance(Duration::from_secs(5)).await;
        assert_eq!(queue.stalled_for(), Duration::from_secs(5));
        let (_, due) = queue.next().await;
        assert_eq!(due.elapsed(), Duration::from_secs(5));
        assert_eq!((queue.depth(), queue.stalled_for()), (1, Duration::ZERO));
        queue.next().await;
        advance(Duration::from_secs(30)).await;
        assert_eq!((queue.depth(), queue.stalled_for()), (0, Duration::ZERO));
    }
}
