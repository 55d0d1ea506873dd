//! The queue between watches and reconciliation: keyed and delayed.
//!
//! A key waits at most once, its earliest deadline wins, and it is never handed out while a pass
//! over it is under way. So memory is bounded by the number of objects, and a storm of events
//! about one object costs one pass. kube's own scheduler cannot be fed from a callback, and
//! knows neither growing pauses nor a bound on what runs.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::backoff::jittered;

/// Pause after the first failure of a key.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause after failures in a row, if the object is to blame.
pub const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Longest pause if the API server is: what failed because it was away is done soon after it is
/// back. How much that asks of it is bounded by the number of passes at once.
pub const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(5);

/// A queue of keys.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    /// Keys by the time at which they are due.
    order: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    /// Keys in passes, with the time for which they were asked for again meanwhile.
    running: HashMap<K, Option<Instant>>,
    /// Failures in a row.
    failures: HashMap<K, u32>,
    open: bool,
    /// When a key was last handed out.
    taken: Instant,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                order: BTreeSet::new(),
                due: HashMap::new(),
                running: HashMap::new(),
                failures: HashMap::new(),
                open: false,
                taken: Instant::now(),
            }),
            changed: Notify::new(),
        }
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord> Queue<K> {
    /// Begins to take keys. Before, they are dropped: nobody works on them, and so nobody would
    /// ever drop those of objects that are gone.
    pub fn open(&self) {
        self.state.lock().open = true;
    }

    /// Asks for a pass at once.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Asks for a pass at a time; an earlier one that was asked for holds.
    pub fn add_at(&self, key: K, at: Instant) {
        let mut state = self.state.lock();
        if state.open {
            state.add(key, at);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// What waits is due this much earlier.
    pub fn hurry(&self, by: Duration) {
        let mut state = self.state.lock();
        let earlier = |at: Instant| at.checked_sub(by).unwrap_or_else(Instant::now);
        let State {
            order,
            due,
            running,
            ..
        } = &mut *state;
        for at in due.values_mut().chain(running.values_mut().flatten()) {
            *at = earlier(*at);
        }
        *order = due.iter().map(|(key, at)| (*at, key.clone())).collect();
        drop(state);
        self.changed.notify_one();
    }

    /// How many keys are due and not handed out.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        let state = self.state.lock();
        state.order.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// How long nobody has taken a key although one was due.
    pub fn stalled(&self) -> Duration {
        let state = self.state.lock();
        let since = state.order.first().map(|(at, _)| (*at).max(state.taken));
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The next key that is due, and since when it has been. It is not handed out again before
    /// [`Queue::done`] or [`Queue::failed`].
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

    /// Ends a pass that went well.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.failures.remove(key);
        state.finish(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends a pass that failed: another one follows after a pause that grows up to `longest`. What
    /// was asked for meanwhile waits as well, or a failing object would be retried by its own
    /// events.
    pub fn failed(&self, key: &K, longest: Duration) {
        let mut state = self.state.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        *failures += 1;
        let pause = pause(*failures, longest);
        state.running.remove(key);
        state.add(key.clone(), Instant::now() + pause);
        drop(state);
        self.changed.notify_one();
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, key: K, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
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

    /// The first key if it is due, otherwise when it will be.
    fn take(&mut self, now: Instant) -> Result<(K, Instant), Option<Instant>> {
        match self.order.first() {
            Some((at, _)) if *at <= now => {}
            other => return Err(other.map(|(at, _)| *at)),
        }
        let Some((at, key)) = self.order.pop_first() else {
            return Err(None);
        };
        self.due.remove(&key);
        self.running.insert(key.clone(), None);
        self.taken = now;
        Ok((key, at))
    }

    fn finish(&mut self, key: &K) {
        if let Some(Some(at)) = self.running.remove(key) {
            self.add(key.clone(), at);
        }
    }
}

fn pause(failures: u32, longest: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    jittered(FIRST_PAUSE.saturating_mul(doubled).min(longest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{advance, timeout};

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn opened() -> Queue<u8> {
        let queue = Queue::default();
        queue.open();
        queue
    }

    async fn idle(queue: &Queue<u8>) -> bool {
        timeout(SOON, queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_its_earliest_deadline_wins() {
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
    async fn a_key_is_never_handed_out_twice_at_once() {
        let queue = opened();
        queue.add(1);
        assert_eq!(queue.next().await.0, 1);
        queue.add(1);
        assert!(idle(&queue).await);
        queue.done(&1);
        assert_eq!(queue.next().await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_pause_a_key_longer_and_longer_and_success_forgives() {
        let queue = opened();
        queue.add(1);
        let mut waits = Vec::new();
        for _ in 0..15 {
            let start = Instant::now();
            queue.next().await;
            waits.push(start.elapsed());
            queue.add(1);
            queue.failed(&1, LONGEST_PAUSE);
        }
        assert!(waits[1] >= FIRST_PAUSE / 2 && waits[1] <= FIRST_PAUSE + SOON);
        assert!(waits[14] >= LONGEST_PAUSE / 2 && waits[14] <= LONGEST_PAUSE + SOON);
        queue.next().await;
        queue.done(&1);
        queue.add(1);
        queue.next().await;
        queue.failed(&1, LONGEST_PAUSE);
        let start = Instant::now();
        queue.next().await;
        assert!(start.elapsed() <= FIRST_PAUSE + SOON);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_taker_is_woken() {
        let queue = Arc::new(opened());
        let taker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await.0 }
        });
        advance(SOON).await;
        queue.add(7);
        assert_eq!(taker.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn only_keys_that_are_due_and_left_lying_are_a_stall() {
        let queue = opened();
        queue.add_at(1, Instant::now() + Duration::from_mins(1));
        queue.add(2);
        queue.add(3);
        assert_eq!(queue.depth(), 2);
        advance(Duration::from_secs(5)).await;
        assert_eq!(queue.stalled(), Duration::from_secs(5));
        let (_, due) = queue.next().await;
        assert_eq!(due.elapsed(), Duration::from_secs(5));
        assert_eq!((queue.depth(), queue.stalled()), (1, Duration::ZERO));
        queue.next().await;
        advance(Duration::from_secs(30)).await;
        assert_eq!((queue.depth(), queue.stalled()), (0, Duration::ZERO));
    }
}
