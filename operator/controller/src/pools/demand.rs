//! Size of a pool by its demand: as many warm Pods as sandboxes asked for while a claimed one was
//! being replaced. Demand is known to this process only: a new leader begins with the size that the
//! status says.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use shared::index::Key;

/// Time that demand is remembered. A pool shrinks that long after a peak.
const MEMORY: Duration = Duration::from_hours(1);
/// Requests that are remembered for one pool.
const MAX_REQUESTS: usize = 20_000;
/// Time in which a warm Pod is replaced, until one has been measured.
const INITIAL_REPLACEMENT: Duration = Duration::from_secs(10);
const MIN_REPLACEMENT: Duration = Duration::from_secs(1);

/// Demand of all pools with a maximum size.
#[derive(Debug, Default)]
pub(crate) struct DemandIndex(Mutex<HashMap<Key, Demand>>);

#[derive(Debug, Default)]
struct Demand {
    requests: VecDeque<Instant>,
    /// Moving average of the time from the creation of a warm Pod until it is ready.
    replacement: Option<Duration>,
    /// Size before this process knew the demand, and the time until which it stands. It is set once.
    inherited: Option<(usize, Instant)>,
}

impl DemandIndex {
    /// Records a sandbox that fits the pool, whether or not there was a warm Pod for it.
    pub(crate) fn record_request(&self, pool: &Key) {
        let mut pools = self.0.lock();
        let requests = &mut pools.entry(pool.clone()).or_default().requests;
        if requests.len() == MAX_REQUESTS {
            requests.pop_front();
        }
        requests.push_back(Instant::now());
    }

    /// Records the time that a warm Pod took to become ready.
    pub(crate) fn record_replacement(&self, pool: &Key, took: Duration) {
        let mut pools = self.0.lock();
        let average = &mut pools.entry(pool.clone()).or_default().replacement;
        *average = Some(average.map_or(took, |average| (average * 7 + took) / 8));
    }

    /// Number of warm Pods that would have served this percentage of the requests. `inherited` is
    /// the size that the status says.
    pub(crate) fn size(&self, pool: &Key, percent: u32, inherited: usize) -> usize {
        let now = Instant::now();
        let mut pools = self.0.lock();
        let demand = pools.entry(pool.clone()).or_default();
        let (size, until) = *demand.inherited.get_or_insert((inherited, now + MEMORY));
        let is_old = |at: &Instant| now.duration_since(*at) > MEMORY;
        while demand.requests.front().is_some_and(is_old) {
            demand.requests.pop_front();
        }
        let measured = percentile(&demand.bursts(), percent);
        measured.max(if now < until { size } else { 0 })
    }

    pub(crate) fn forget(&self, pool: &Key) {
        self.0.lock().remove(pool);
    }
}

impl Demand {
    /// For each request, the number of requests, itself included, in the time of a replacement
    /// before it.
    fn bursts(&self) -> Vec<usize> {
        let window = self.replacement.unwrap_or(INITIAL_REPLACEMENT);
        let window = window.max(MIN_REPLACEMENT);
        let mut first = 0;
        let burst = |(last, at): (usize, &Instant)| {
            while at.duration_since(self.requests[first]) > window {
                first += 1;
            }
            last - first + 1
        };
        self.requests.iter().enumerate().map(burst).collect()
    }
}

/// Least value that this percentage of the values does not exceed; 0 without values.
fn percentile(values: &[usize], percent: u32) -> usize {
    let mut values = values.to_vec();
    values.sort_unstable();
    let percent = usize::try_from(percent).unwrap_or(100).min(100);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::tests::key;

    #[tokio::test(start_paused = true)]
    async fn size_covers_the_requests_of_one_replacement() {
        let (demand, pool) = (DemandIndex::default(), key("p"));
        let size = |percent| demand.size(&pool, percent, 3);
        assert_eq!(size(99), 3, "as before the process began");
        demand.record_replacement(&pool, Duration::from_secs(4));
        // One in each second, and once six.
        for second in 0..100 {
            for _ in 0..if second == 50 { 6 } else { 1 } {
                demand.record_request(&pool);
            }
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(size(100), 10);
        assert_eq!(size(50), 5);
        advance(MEMORY).await;
        assert_eq!(size(100), 0, "demand is forgotten");
    }
}
