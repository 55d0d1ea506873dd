//! Fault injection for tests: lagging watches, conflicts, lost responses, outages. It is a layer
//! around the API that only [`TestApi`] constructs.

mod layer;
mod request_log;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use layer::{FaultyService, TestApi};
pub use request_log::{RequestInfo, Write};

/// Switches faults on and off and records writes. Clones share one state.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<FaultState>>,
    /// Increases when all watches are dropped.
    drops: watch::Sender<u64>,
    outage: watch::Sender<Outage>,
    /// Number of requests that met [`Failure::Freeze`].
    frozen: watch::Sender<u64>,
}

type Predicate = Arc<dyn Fn(&RequestInfo) -> bool + Send + Sync>;

struct FaultState {
    watch_lag: Duration,
    latency: Duration,
    rules: VecDeque<Rule>,
    writes: VecDeque<Write>,
    written: u64,
    exempt_agent: Option<String>,
}

struct Rule {
    left: usize,
    failure: Failure,
    applies: Predicate,
}

/// Failure of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Response with this code (409, 429, 500, 503, …); the request is not executed.
    Code(StatusCode),
    /// The connection breaks before the request is executed.
    Refuse,
    /// The connection breaks after the request was executed; the client cannot know.
    DropResponse,
    /// The request is executed but never answered, as for a client that dies at this moment.
    /// [`Faults::frozen`] counts these requests.
    Freeze,
}

/// Reachability of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    #[default]
    None,
    /// Connections are refused and open watches break.
    Refuse,
    /// Requests are not answered and watches send nothing until the outage is over.
    Hang,
}

/// Maximum number of recorded writes; the oldest is dropped.
const MAX_WRITES: usize = 65_536;
/// Maximum number of rules; the oldest is dropped.
const MAX_RULES: usize = 64;

impl Faults {
    fn new() -> Self {
        let state = FaultState {
            watch_lag: Duration::ZERO,
            latency: Duration::ZERO,
            rules: VecDeque::new(),
            writes: VecDeque::new(),
            written: 0,
            exempt_agent: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            drops: watch::Sender::new(0),
            outage: watch::Sender::new(Outage::None),
            frozen: watch::Sender::new(0),
        }
    }

    /// Exempts clients with this user agent prefix: observers of a test and fake nodes.
    pub fn exempt(&self, agent: &str) {
        self.state.lock().exempt_agent = Some(agent.to_owned());
    }

    /// Delays watch events after the change.
    pub fn set_watch_lag(&self, lag: Duration) {
        self.state.lock().watch_lag = lag;
    }

    /// Delays every request before it is executed.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// Breaks all open watches once.
    pub fn drop_watches(&self) {
        self.drops.send_modify(|count| *count += 1);
    }

    pub fn set_outage(&self, outage: Outage) {
        self.outage.send_replace(outage);
    }

    /// Fails the next `count` requests that `applies` accepts.
    pub fn fail_next(
        &self,
        count: usize,
        failure: Failure,
        applies: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static,
    ) {
        let mut state = self.state.lock();
        state.rules.push_back(Rule {
            left: count,
            failure,
            applies: Arc::new(applies),
        });
        if state.rules.len() > MAX_RULES {
            state.rules.pop_front();
        }
    }

    /// Number of requests that met [`Failure::Freeze`].
    pub fn frozen(&self) -> watch::Receiver<u64> {
        self.frozen.subscribe()
    }

    /// Removes all rules of `fail_next`.
    pub fn clear_failures(&self) {
        self.state.lock().rules.clear();
    }

    /// Recorded writes, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.state.lock().writes.iter().cloned().collect()
    }

    /// Forgets the recorded writes.
    pub fn clear_writes(&self) {
        self.state.lock().writes.clear();
    }

    /// Number of recorded writes that `matches` accepts.
    pub fn count_writes(&self, matches: impl Fn(&Write) -> bool) -> usize {
        self.state
            .lock()
            .writes
            .iter()
            .filter(|write| matches(write))
            .count()
    }

    /// Number of write requests since the start, recorded or not.
    pub fn total_writes(&self) -> u64 {
        self.state.lock().written
    }

    fn watch_lag(&self) -> Duration {
        self.state.lock().watch_lag
    }

    fn is_exempt(&self, user_agent: &str) -> bool {
        let state = self.state.lock();
        let exempt_agent = state.exempt_agent.as_deref();
        exempt_agent.is_some_and(|exempt_agent| user_agent.starts_with(exempt_agent))
    }

    /// Holds a request for ever.
    async fn freeze(&self) {
        self.frozen.send_modify(|count| *count += 1);
        std::future::pending::<()>().await;
    }

    fn latency(&self) -> Duration {
        self.state.lock().latency
    }

    fn drops(&self) -> watch::Receiver<u64> {
        self.drops.subscribe()
    }

    fn outage(&self) -> watch::Receiver<Outage> {
        self.outage.subscribe()
    }

    /// Failure of this request, if any. Counts against its rule.
    fn take_failure(&self, request: &RequestInfo) -> Option<Failure> {
        let mut state = self.state.lock();
        state.rules.retain(|rule| rule.left > 0);
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| (rule.applies)(request))?;
        rule.left -= 1;
        Some(rule.failure)
    }

    fn record(&self, write: Write) {
        let mut state = self.state.lock();
        state.written += 1;
        if state.writes.len() == MAX_WRITES {
            state.writes.pop_front();
        }
        state.writes.push_back(write);
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("outage", &*self.outage.borrow())
            .finish_non_exhaustive()
    }
}
