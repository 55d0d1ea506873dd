//! Which objects went away lately: answers to writes and look-ups may arrive after the news that
//! their object is gone, and must not bring it back. No watch would ever remove it again.

use std::collections::{HashSet, VecDeque};

/// How many are remembered. An answer is late by seconds, not by so many deletions.
const REMEMBERED: usize = 4096;

/// Uids of objects that are gone. The API server never gives one out again.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    uids: HashSet<String>,
    /// Oldest first.
    order: VecDeque<String>,
}

impl Gone {
    pub(crate) fn insert(&mut self, uid: &str) {
        if !self.uids.insert(uid.to_owned()) {
            return;
        }
        self.order.push_back(uid.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_are_remembered() {
        let mut gone = Gone::default();
        for n in 0..=REMEMBERED {
            gone.insert(&n.to_string());
            gone.insert(&n.to_string());
        }
        assert!(!gone.contains("0"));
        assert!(gone.contains("1") && gone.contains(&REMEMBERED.to_string()));
        assert_eq!(
            (gone.uids.len(), gone.order.len()),
            (REMEMBERED, REMEMBERED)
        );
    }
}
