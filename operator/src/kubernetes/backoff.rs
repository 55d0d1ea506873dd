//! Growing, jittered pauses: between attempts of one watch, and between passes over one object.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use kube::runtime::utils::{Backoff, ResetTimerBackoff};

/// Pauses that double from `first` to `last`.
#[derive(Debug, Clone)]
pub struct Pauses {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Pauses {
    pub fn new(first: Duration, last: Duration) -> Self {
        Self {
            first,
            last,
            next: first,
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(self.last);
        Some(jittered(pause))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Pauses of a watch: up to 5 s, so that a restored API server is noticed at once. They start
/// anew only after a quiet while, because a watcher reports success before it has connected.
pub fn of_watch() -> ResetTimerBackoff<Pauses> {
    let pauses = Pauses::new(Duration::from_millis(200), Duration::from_secs(5));
    ResetTimerBackoff::new(pauses, Duration::from_secs(30))
}

/// A pause of 50 to 100 % of the given one, so that many who failed together do not return
/// together.
pub fn jittered(pause: Duration) -> Duration {
    // A fresh RandomState is randomly keyed: randomness enough for spreading load.
    let random = RandomState::new().build_hasher().finish() % 1000;
    pause.mul_f64(0.5 + f64::from(u32::try_from(random).unwrap_or(0)) / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_start_anew() {
        let mut pauses = Pauses::new(Duration::from_millis(200), Duration::from_secs(5));
        let taken: Vec<_> = pauses.by_ref().take(10).collect();
        assert!(taken[0] <= Duration::from_millis(200));
        assert!(taken[9] >= Duration::from_millis(2500) && taken[9] <= Duration::from_secs(5));
        pauses.reset();
        assert!(pauses.next().unwrap() <= Duration::from_millis(200));
    }
}
