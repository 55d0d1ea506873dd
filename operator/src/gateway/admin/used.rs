//! Challenges that have been answered: each is good for one attempt. Known to this replica alone;
//! another one would take the same answer once more within its five minutes.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

/// Most challenges that are remembered: about as many logins as are computed within the life of
/// one, so that hardly any is forgotten before it has expired.
const MOST: usize = 65_536;

/// Challenges and when they expire.
#[derive(Debug, Default)]
pub(super) struct Used {
    until: HashMap<String, Timestamp>,
    /// In the order of their use.
    order: VecDeque<String>,
}

impl Used {
    /// Notes a challenge that is valid until then, and forgets those used longest ago if they have
    /// expired or are too many. False if it has been used.
    pub(super) fn insert(&mut self, challenge: &str, until: Timestamp, now: Timestamp) -> bool {
        if self.until.contains_key(challenge) {
            return false;
        }
        // Two for each that comes, so that the expired become fewer.
        self.forget(now);
        self.forget(now);
        self.until.insert(challenge.to_owned(), until);
        self.order.push_back(challenge.to_owned());
        true
    }

    fn forget(&mut self, now: Timestamp) {
        let Some(oldest) = self.order.front() else {
            return;
        };
        let expired = self.until.get(oldest).is_none_or(|until| *until <= now);
        if expired || self.order.len() >= MOST {
            self.until.remove(oldest);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_second(n).unwrap()
    }

    #[test]
    fn the_oldest_make_room() {
        let mut used = Used::default();
        for n in 0..2 * MOST {
            assert!(used.insert(&n.to_string(), second(10), second(0)));
            assert!(used.until.len() <= MOST && used.until.len() == used.order.len());
        }
        let last = (2 * MOST - 1).to_string();
        assert!(!used.insert(&last, second(10), second(0)));
    }

    #[test]
    fn the_expired_are_forgotten() {
        let mut used = Used::default();
        for n in 0..100 {
            assert!(used.insert(&n.to_string(), second(10), second(0)));
        }
        for n in 100..200 {
            assert!(used.insert(&n.to_string(), second(20), second(10)));
        }
        assert_eq!(used.until.len(), 100);
        assert!(!used.insert("100", second(20), second(10)));
    }
}
