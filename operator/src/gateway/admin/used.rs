//! Challenges that have been answered: each is good for one attempt. Known to this replica alone;
//! another one would take the same answer once more within its five minutes.

use std::collections::HashMap;

use jiff::Timestamp;

/// Most challenges that are remembered. Logins are too slow for more within the life of one.
const MOST: usize = 65_536;

/// Challenges and when they expire.
#[derive(Debug, Default)]
pub(super) struct Used(HashMap<String, Timestamp>);

impl Used {
    /// Notes a challenge that is valid until then. False if it has been used, or if too many have.
    pub(super) fn insert(&mut self, challenge: &str, until: Timestamp, now: Timestamp) -> bool {
        if self.0.contains_key(challenge) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, until| *until > now);
        }
        let room = self.0.len() < MOST;
        if room {
            self.0.insert(challenge.to_owned(), until);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expired_make_room() {
        let second = |n| Timestamp::from_second(n).unwrap();
        let mut used = Used::default();
        for n in 0..MOST {
            assert!(used.insert(&n.to_string(), second(10), second(0)));
        }
        assert!(!used.insert("0", second(10), second(0)));
        assert!(!used.insert("more", second(10), second(9)));
        assert!(used.insert("more", second(20), second(10)));
        assert_eq!(used.0.len(), 1);
    }
}
