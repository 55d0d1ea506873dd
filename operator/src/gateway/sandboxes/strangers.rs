//! Look-ups of what the index does not know. The API server is asked, because another replica may
//! have made it a moment ago; but anybody can ask for ids that do not exist, so only so often. Who
//! comes beyond that waits a moment for the index to hear of it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long news of another replica may take to reach the index.
pub(super) const NEWS: Duration = Duration::from_millis(300);
/// How long an id that did not exist is not asked for again.
const MISSING_FOR: Duration = Duration::from_secs(1);
/// Most ids that are remembered as missing.
const MISSING: usize = 4096;

/// How long an answer of the API server says that it is there. Who may not ask has followed others
/// that did by a few hundredths of a second, or the same id by [`MISSING_FOR`], and then waits for
/// [`NEWS`].
const ANSWER_HOLDS: Duration = Duration::from_millis(1500);

/// How often the API server may still be asked, and what came of it.
#[derive(Debug)]
pub(super) struct Strangers {
    /// The last answer, if nothing has failed since.
    answered: Mutex<Option<Instant>>,
    ids: Mutex<Bucket>,
    sessions: Mutex<Bucket>,
    missing: Mutex<Missing>,
}

/// So many at once after a quiet time, and then so many per second.
#[derive(Debug)]
struct Bucket {
    burst: u32,
    per_second: u32,
    next: Option<Instant>,
}

/// Ids that did not exist a moment ago.
#[derive(Debug, Default)]
struct Missing {
    since: HashMap<String, Instant>,
    /// Oldest first.
    order: VecDeque<String>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self {
            // Without a key.
            answered: Mutex::default(),
            ids: Mutex::new(Bucket::new(100, 20)),
            // With one.
            sessions: Mutex::new(Bucket::new(500, 100)),
            missing: Mutex::default(),
        }
    }
}

impl Strangers {
    /// Whether this runtime id may be asked for.
    pub(super) fn may_ask_id(&self, id: &str) -> bool {
        !self.missing.lock().contains(id) && self.ids.lock().take()
    }

    /// Whether one more session may be asked for.
    pub(super) fn may_ask_session(&self) -> bool {
        self.sessions.lock().take()
    }

    /// Whether this sandbox may be asked for, which would be the next of a session.
    pub(super) fn may_ask_next(&self, id: &str) -> bool {
        !self.missing.lock().contains(id) && self.sessions.lock().take()
    }

    /// Notes that the API server answered, or did not.
    pub(super) fn note_answer(&self, answered: bool) {
        *self.answered.lock() = answered.then(Instant::now);
    }

    /// Whether the API server answers those that may ask.
    pub(super) fn are_answered(&self) -> bool {
        let answered = *self.answered.lock();
        answered.is_some_and(|at| at.elapsed() <= ANSWER_HOLDS)
    }

    /// Notes that an id does not exist, or is not to be asked for again at once.
    pub(super) fn note_missing(&self, id: &str) {
        self.missing.lock().insert(id);
    }
}

impl Bucket {
    fn new(burst: u32, per_second: u32) -> Self {
        Self {
            burst,
            per_second,
            next: None,
        }
    }

    fn take(&mut self) -> bool {
        let now = Instant::now();
        let each = Duration::from_secs(1) / self.per_second;
        let next = self.next.map_or(now, |next| next.max(now));
        let room = next.duration_since(now) < each * self.burst;
        if room {
            self.next = Some(next + each);
        }
        room
    }
}

impl Missing {
    fn contains(&self, id: &str) -> bool {
        let since = self.since.get(id);
        since.is_some_and(|since| since.elapsed() < MISSING_FOR)
    }

    fn insert(&mut self, id: &str) {
        if self.since.insert(id.to_owned(), Instant::now()).is_none() {
            self.order.push_back(id.to_owned());
        }
        if self.order.len() > MISSING
            && let Some(oldest) = self.order.pop_front()
        {
            self.since.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scan_is_slowed_and_a_quiet_time_forgives() {
        let strangers = Strangers::default();
        let asked = |n: usize| {
            (0..n)
                .filter(|n| strangers.may_ask_id(&n.to_string()))
                .count()
        };
        assert_eq!(asked(10_000), 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked(10_000), 20);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(asked(10_000), 100);
        assert!(strangers.may_ask_session());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_until_a_failure_and_not_for_long() {
        let strangers = Strangers::default();
        assert!(!strangers.are_answered());
        strangers.note_answer(true);
        tokio::time::advance(MISSING_FOR + NEWS).await;
        assert!(strangers.are_answered());
        strangers.note_answer(false);
        assert!(!strangers.are_answered());
        strangers.note_answer(true);
        tokio::time::advance(ANSWER_HOLDS + Duration::from_millis(1)).await;
        assert!(!strangers.are_answered());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missing_is_not_asked_for_at_once_again() {
        let strangers = Strangers::default();
        for n in 0..=MISSING {
            strangers.note_missing(&n.to_string());
        }
        assert!(strangers.may_ask_id("0"), "the oldest is forgotten");
        assert!(!strangers.may_ask_id("1"));
        tokio::time::advance(MISSING_FOR).await;
        assert!(strangers.may_ask_id("1"));
        let missing = strangers.missing.lock();
        assert_eq!(
            (missing.since.len(), missing.order.len()),
            (MISSING, MISSING)
        );
    }
}
