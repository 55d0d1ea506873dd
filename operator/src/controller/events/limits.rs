//! How many events there may be: token buckets, one for each sandbox that had some lately.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Events of one sandbox at once.
const OBJECT_BURST: f64 = 10.0;
/// Events of one sandbox per second, afterwards: two a minute.
const OBJECT_RATE: f64 = 1.0 / 30.0;
/// Sandboxes that are remembered. Buckets that are full again are dropped first.
const REMEMBERED: usize = 4096;

/// Fills at a rate, up to a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    level: f64,
    capacity: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(capacity: f64, per_second: f64, now: Instant) -> Self {
        Self {
            level: capacity,
            capacity,
            per_second,
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let gained = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.level = (self.level + gained).min(self.capacity);
        self.at = now;
    }

    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has = self.level >= 1.0;
        if has {
            self.level -= 1.0;
        }
        has
    }

    /// Takes a token, possibly one of the future: when it may be used.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        self.fill(now);
        self.level -= 1.0;
        let missing = (-self.level).max(0.0) / self.per_second;
        now + Duration::from_secs_f64(missing)
    }

    fn is_full(&self, now: Instant) -> bool {
        let mut bucket = *self;
        bucket.fill(now);
        bucket.level >= bucket.capacity
    }
}

/// Buckets of sandboxes, by uid.
#[derive(Debug, Default)]
pub(super) struct Buckets(HashMap<String, Bucket>);

impl Buckets {
    /// Whether this sandbox may have another event.
    pub(super) fn take(&mut self, uid: &str, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(uid) {
            self.make_room(now);
        }
        let fresh = || Bucket::new(OBJECT_BURST, OBJECT_RATE, now);
        self.0.entry(uid.to_owned()).or_insert_with(fresh).take(now)
    }

    /// Drops the full buckets, which say nothing, or else all: then some sandboxes get a few more.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, bucket| !bucket.is_full(now));
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_gets_ten_at_once_and_then_two_a_minute() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        let taken = (0..100).filter(|_| buckets.take("a", now)).count();
        assert_eq!(taken, 10);
        assert!(buckets.take("b", now));
        let later = now + Duration::from_secs(61);
        assert_eq!((0..10).filter(|_| buckets.take("a", later)).count(), 2);
    }

    #[test]
    fn only_so_many_sandboxes_are_remembered() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        for n in 0..20_000 {
            buckets.take(&n.to_string(), now);
        }
        assert!(buckets.0.len() <= REMEMBERED);
    }

    #[test]
    fn tokens_of_the_future_come_one_after_the_other() {
        let now = Instant::now();
        let mut bucket = Bucket::new(2.0, 10.0, now);
        let waits: Vec<_> = (0..4).map(|_| bucket.next(now) - now).collect();
        let tenth = Duration::from_millis(100);
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, tenth, tenth * 2]);
    }
}
