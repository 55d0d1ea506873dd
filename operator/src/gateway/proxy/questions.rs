//! Which sandboxes the API server is being asked about, because they seem not to be ready, or was
//! asked a moment ago. Anybody can send requests to them, as many as they like; what those cost the
//! API server must not depend on it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::index::Key;

/// How long one is not asked about again.
const QUIET: Duration = Duration::from_millis(500);
/// Most sandboxes that are asked about within that time.
const MOST: usize = 64;
/// Questions under way at the same time: half of all look-ups, so that the API keeps the others.
const AT_ONCE: usize = 16;

/// Sandboxes that are not asked about now. Without a time, a question is under way.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<HashMap<Key, Option<Instant>>>);

/// The right to ask about one sandbox, once.
#[derive(Debug)]
pub(super) struct Question<'a> {
    questions: &'a Questions,
    key: &'a Key,
}

impl Questions {
    /// The right to ask about a sandbox, unless another has it or has had it a moment ago.
    pub(super) fn begin<'a>(&'a self, key: &'a Key) -> Option<Question<'a>> {
        let mut asked = self.0.lock();
        let is_quiet = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() < QUIET);
        if asked.get(key).is_some_and(is_quiet) {
            return None;
        }
        if asked.len() >= MOST {
            asked.retain(|_, at| is_quiet(at));
        }
        let under_way = asked.values().filter(|at| at.is_none()).count();
        if asked.len() >= MOST || under_way >= AT_ONCE {
            return None;
        }
        asked.insert(key.clone(), None);
        Some(Question {
            questions: self,
            key,
        })
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut asked = self.questions.0.lock();
        if let Some(at) = asked.get_mut(self.key) {
            *at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key {
            namespace: "sandboxes".into(),
            name: n.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_and_none_for_a_moment_after() {
        let questions = Questions::default();
        let key = key(0);
        let first = questions.begin(&key);
        tokio::time::advance(2 * QUIET).await;
        assert!(first.is_some() && questions.begin(&key).is_none());
        drop(first);
        assert!(questions.begin(&key).is_none());
        tokio::time::advance(QUIET).await;
        assert!(questions.begin(&key).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn not_about_all_at_once() {
        let questions = Questions::default();
        let keys: Vec<_> = (0..10 * MOST).map(key).collect();
        let at_once: Vec<_> = keys.iter().filter_map(|key| questions.begin(key)).collect();
        assert_eq!(at_once.len(), AT_ONCE);
        drop(at_once);
        tokio::time::advance(QUIET).await;
        let asked = || {
            let asked = keys.iter().filter(|key| questions.begin(key).is_some());
            asked.count()
        };
        assert_eq!(asked(), MOST);
        assert_eq!(asked(), 0);
        tokio::time::advance(QUIET).await;
        assert_eq!(asked(), MOST);
    }
}
