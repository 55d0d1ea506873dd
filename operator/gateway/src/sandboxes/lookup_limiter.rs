//! Rate limit and negative cache of live lookups. Another replica may have created an object that
//! the index lacks, but unauthenticated requests can name any id. Lookups beyond the limit wait for
//! the index instead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use shared::index::Key;
use shared::recent_map::RecentMap;
use shared::token_bucket::TokenBucket;

/// Time within which a write of another replica reaches the index.
pub(crate) const INDEX_CATCH_UP_TIMEOUT: Duration = Duration::from_millis(300);
/// Time for which an id that did not exist is not looked up again.
const NEGATIVE_CACHE_TTL: Duration = Duration::from_secs(1);
/// Maximum number of ids in the negative cache, and of confirmations that are remembered.
const CACHE_CAPACITY: usize = 4096;

/// Time for which an answer proves that the API server is available. A caller without a lookup has
/// waited for [`INDEX_CATCH_UP_TIMEOUT`] after the last lookup, at most [`NEGATIVE_CACHE_TTL`] ago.
const API_ALIVE_WINDOW: Duration = Duration::from_millis(1500);

/// Time for which the confirmation of an entry holds, and time without any after a failure, so that
/// an outage delays few requests.
const CONFIRMATION_TTL: Duration = Duration::from_secs(5);

type Confirmation = Arc<OnceCell<()>>;

/// Rate limit of live lookups: `BURST` at once, then `PER_SECOND`.
#[derive(Debug)]
pub(crate) struct LookupRateLimit<const BURST: u32, const PER_SECOND: u32>(Mutex<TokenBucket>);

/// Limit of authenticated callers, whose polls have no other one.
pub(crate) type AuthenticatedLookups = LookupRateLimit<500, 100>;
type UnauthenticatedLookups = LookupRateLimit<100, 20>;

/// Limits live lookups of sandboxes and remembers their results.
#[derive(Debug, Default)]
pub(super) struct LookupLimiter {
    /// Time and success of the last lookup.
    last_result: Mutex<Option<(Instant, bool)>>,
    confirmations: Mutex<RecentMap<Key, (Instant, Confirmation), CACHE_CAPACITY>>,
    ids: UnauthenticatedLookups,
    sessions: AuthenticatedLookups,
    missing: Mutex<RecentMap<String, Instant, CACHE_CAPACITY>>,
}

impl<const BURST: u32, const PER_SECOND: u32> Default for LookupRateLimit<BURST, PER_SECOND> {
    fn default() -> Self {
        let interval = Duration::from_secs(1) / PER_SECOND;
        Self(Mutex::new(TokenBucket::new(BURST, interval)))
    }
}

impl<const BURST: u32, const PER_SECOND: u32> LookupRateLimit<BURST, PER_SECOND> {
    pub(crate) fn allows_lookup(&self) -> bool {
        self.0.lock().take()
    }
}

impl LookupLimiter {
    pub(super) fn allows_id(&self, id: &str) -> bool {
        !self.is_missing(id) && self.ids.allows_lookup()
    }

    pub(super) fn allows_session(&self) -> bool {
        self.sessions.allows_lookup()
    }

    pub(super) fn allows_next_epoch(&self, id: &str) -> bool {
        !self.is_missing(id) && self.allows_session()
    }

    /// Records that the API server answered a lookup that began at `started`, or did not. A failure
    /// does not outweigh an answer that came while it was waited for.
    pub(super) fn record_api_result(&self, started: Instant, answered: bool) {
        let mut last = self.last_result.lock();
        if answered || !last.is_some_and(|(at, ok)| ok && at > started) {
            *last = Some((Instant::now(), answered));
        }
    }

    pub(super) fn api_answered_recently(&self) -> bool {
        let last = *self.last_result.lock();
        last.is_some_and(|(at, ok)| ok && at.elapsed() <= API_ALIVE_WINDOW)
    }

    /// Returns the confirmation of an entry that is running or still holds, or a new one. Concurrent
    /// requests for one sandbox share it.
    pub(super) fn confirmation(&self, key: &Key) -> Confirmation {
        let mut confirmations = self.confirmations.lock();
        let known = confirmations.get(key);
        if let Some((_, known)) = known.filter(|(since, _)| since.elapsed() < CONFIRMATION_TTL) {
            return known.clone();
        }
        let new = Confirmation::default();
        confirmations.insert(key.clone(), (Instant::now(), new.clone()));
        new
    }

    /// Returns whether an entry may be confirmed. After a failure, one caller at a time tries.
    pub(super) fn allows_confirmation(&self) -> bool {
        let mut last = self.last_result.lock();
        let Some((at, false)) = &mut *last else {
            return true;
        };
        let is_due = at.elapsed() >= CONFIRMATION_TTL;
        *at = if is_due { Instant::now() } else { *at };
        is_due
    }

    fn is_missing(&self, id: &str) -> bool {
        let missing = self.missing.lock();
        let since = missing.get(id);
        since.is_some_and(|since| since.elapsed() < NEGATIVE_CACHE_TTL)
    }

    pub(super) fn record_missing(&self, id: &str) {
        self.missing.lock().insert(id.to_owned(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookup_limiter_throttles_scans_and_refills() {
        let limiter = LookupLimiter::default();
        let allowed = |n: usize| (0..n).filter(|n| limiter.allows_id(&n.to_string())).count();
        assert_eq!(allowed(10_000), 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(allowed(10_000), 20);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(allowed(10_000), 100);
        assert!(limiter.allows_session());
    }

    #[tokio::test(start_paused = true)]
    async fn api_answer_expires_and_ends_with_a_failure() {
        let limiter = LookupLimiter::default();
        assert!(!limiter.api_answered_recently());
        let start = Instant::now();
        limiter.record_api_result(start, true);
        tokio::time::advance(NEGATIVE_CACHE_TTL + INDEX_CATCH_UP_TIMEOUT).await;
        assert!(limiter.api_answered_recently());
        limiter.record_api_result(start - API_ALIVE_WINDOW, false);
        assert!(limiter.api_answered_recently(), "an answer came meanwhile");
        limiter.record_api_result(Instant::now(), false);
        assert!(!limiter.api_answered_recently());
        limiter.record_api_result(Instant::now(), true);
        tokio::time::advance(API_ALIVE_WINDOW + Duration::from_millis(1)).await;
        assert!(!limiter.api_answered_recently());
    }

    #[tokio::test(start_paused = true)]
    async fn missing_ids_are_cached() {
        let limiter = LookupLimiter::default();
        limiter.record_missing("1");
        assert!(!limiter.allows_id("1") && limiter.allows_id("2"));
        tokio::time::advance(NEGATIVE_CACHE_TTL).await;
        assert!(limiter.allows_id("1"));
    }
}
