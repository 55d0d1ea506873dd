//! Finds out since when nothing happens in a sandbox: asks its server and the gateways, one bounded
//! question per sandbox, only when a deadline has come. The answer wakes reconciliation.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::Peers;
use super::facts::{Quiet, Run};
use crate::clock::Clock;
use crate::index::Key;
use crate::kubernetes::queue::Queue;
use crate::traffic::Traffic;

/// Questions under way at once.
const CONCURRENT: usize = 256;
/// Longest time for one of them: those that are not answered delay the others.
const LIMIT: Duration = Duration::from_secs(2);

/// All questions under way, and their answers.
pub(crate) struct Idleness {
    peers: Peers,
    clock: Clock,
    queue: Arc<Queue<Key>>,
    permits: Arc<Semaphore>,
    asked: Mutex<HashMap<Key, Asked>>,
}

struct Asked {
    run: Run,
    answer: Option<Quiet>,
    /// The question under way, if there is one; it ends when it is no longer of interest.
    task: Option<AbortOnDropHandle<()>>,
}

/// Where the server of a sandbox is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) ip: String,
    pub(crate) port: u16,
}

impl Idleness {
    pub(crate) fn new(peers: Peers, clock: Clock, queue: Arc<Queue<Key>>) -> Self {
        Self {
            peers,
            clock,
            queue,
            permits: Arc::new(Semaphore::new(CONCURRENT)),
            asked: Mutex::default(),
        }
    }

    /// The last answer about this run of the container.
    pub(crate) fn answer(&self, key: &Key, run: &Run) -> Option<Quiet> {
        let asked = self.asked.lock();
        asked.get(key).filter(|a| a.run == *run)?.answer
    }

    /// Asks, unless a question about this run is under way.
    pub(crate) fn ask(self: &Arc<Self>, key: &Key, run: Run, server: Option<Server>) {
        let mut asked = self.asked.lock();
        let known = asked.remove(key).filter(|a| a.run == run);
        let answer = known.as_ref().and_then(|known| known.answer);
        let task = known.and_then(|known| known.task).unwrap_or_else(|| {
            let (idleness, key, run) = (self.clone(), key.clone(), run.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                let quiet = idleness.find_out(&key, server).await;
                idleness.record(&key, &run, quiet);
            }))
        });
        let task = Some(task);
        asked.insert(key.clone(), Asked { run, answer, task });
    }

    /// Forgets a sandbox that does not run.
    pub(crate) fn forget(&self, key: &Key) {
        self.asked.lock().remove(key);
    }

    async fn find_out(&self, key: &Key, server: Option<Server>) -> Quiet {
        let _permit = self.permits.acquire().await;
        let traffic = self.peers.gateways.traffic(key);
        let idle = async {
            let server = server?;
            let asked = self.peers.supervisors.idle(&server.ip, server.port);
            timeout(LIMIT, asked).await.ok()?
        };
        let (idle, traffic) = tokio::join!(idle, traffic);
        let asked = self.clock.now();
        let since = match traffic {
            Ok(traffic) => combine(idle, traffic).map(|idle| before(asked, idle)),
            Err(error) => {
                tracing::warn!(%key, %error, "cannot tell whether the sandbox is idle");
                None
            }
        };
        Quiet { asked, since }
    }

    fn record(&self, key: &Key, run: &Run, quiet: Quiet) {
        let mut asked = self.asked.lock();
        if let Some(asked) = asked.get_mut(key).filter(|a| a.run == *run) {
            asked.answer = Some(quiet);
            asked.task = None;
            self.queue.add(key.clone());
        }
    }
}

/// The server in the sandbox knows best; requests that it cannot see count as well. If it says
/// nothing, the gateways decide, as far as they have watched (runtime API spec 6.3).
fn combine(server: Option<Duration>, traffic: Option<Traffic>) -> Option<Duration> {
    match (server, traffic) {
        (Some(idle), Some(traffic)) if traffic.seen => Some(idle.min(traffic.idle)),
        (Some(idle), _) => Some(idle),
        (None, traffic) => Some(traffic?.idle),
    }
}

/// What a sandbox says may be absurd; then it has been quiet for as long as can be.
fn before(now: Timestamp, idle: Duration) -> Timestamp {
    let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
    now.checked_sub(idle).unwrap_or(Timestamp::MIN)
}
