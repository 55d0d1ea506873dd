//! Growing, jittered delays between attempts.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(3);

/// Delays until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    delay: Duration,
    deadline: Instant,
}

impl Backoff {
    /// Ends `limit` from now.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            delay: INITIAL_BACKOFF,
            deadline: Instant::now() + limit,
        }
    }

    /// Waits, each time for longer. False if the deadline would pass.
    pub(crate) async fn wait(&mut self) -> bool {
        let jittered = self.delay.mul_f64(0.75 + fastrand::f64() / 2.0);
        if Instant::now() + jittered > self.deadline {
            return false;
        }
        sleep(jittered).await;
        self.delay = (self.delay * 2).min(MAX_BACKOFF);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoff_grows_and_ends_before_its_deadline() {
        let began = Instant::now();
        let mut backoff = Backoff::new(Duration::from_secs(20));
        let mut waits = 0;
        while backoff.wait().await {
            waits += 1;
        }
        assert!(began.elapsed() <= Duration::from_secs(20));
        assert!((8..16).contains(&waits), "{waits}");
    }
}
