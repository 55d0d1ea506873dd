//! Trouble on demand. A controller is only proven by how it behaves when watches lag, writes conflict and the server
//! goes away, so the test API can do all of that; in the product nothing here is ever switched on.

mod record;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use record::{RequestInfo, Write};

/// Switches faults on and off and tells what was written. Clones share one state.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// Counts up when all watches are to be dropped.
    drops: watch::Sender<u64>,
    outage: watch::Sender<Outage>,
    /// Requests that met [`Failure::Freeze`].
    frozen: watch::Sender<u64>,
}

type Predicate = Arc<dyn Fn(&RequestInfo) -> bool + Send + Sync>;

struct State {
    watch_lag: Duration,
    latency: Duration,
    rules: VecDeque<Rule>,
    writes: VecDeque<Write>,
    written: u64,
    capacity: usize,
    spared: Option<String>,
}

struct Rule {
    left: usize,
    failure: Failure,
    applies: Predicate,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Answered with this code (409, 429, 500, 503, …) and not executed.
    Code(StatusCode),
    /// The connection breaks before the request is executed.
    Refuse,
    /// The connection breaks after the request was executed: the client cannot know.
    LoseAnswer,
    /// The request is executed and no answer ever comes, as for a client that dies at this moment.
    /// [`Faults::frozen`] tells when it has happened.
    Freeze,
}

/// Whether the server can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    #[default]
    None,
    /// Connections are refused and open watches break.
    Refuse,
    /// Requests are never answered and watches fall silent, until the outage is over.
    Hang,
}

/// More rules than any test needs; older ones make room.
const MOST_RULES: usize = 64;

impl Faults {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            watch_lag: Duration::ZERO,
            latency: Duration::ZERO,
            rules: VecDeque::new(),
            writes: VecDeque::new(),
            written: 0,
            capacity,
            spared: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            drops: watch::Sender::new(0),
            outage: watch::Sender::new(Outage::None),
            frozen: watch::Sender::new(0),
        }
    }

    /// Clients whose user agent begins with this word meet no fault at all: what a test looks
    /// through, and what plays the nodes.
    pub fn spare(&self, agent: &str) {
        self.state.lock().spared = Some(agent.to_owned());
    }

    /// Watch events arrive this much after the change.
    pub fn set_watch_lag(&self, lag: Duration) {
        self.state.lock().watch_lag = lag;
    }

    /// Every request takes this long before it is executed.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// Breaks all open watches, once.
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
        if state.rules.len() > MOST_RULES {
            state.rules.pop_front();
        }
    }

    /// How many requests met [`Failure::Freeze`].
    pub fn frozen(&self) -> watch::Receiver<u64> {
        self.frozen.subscribe()
    }

    /// Forgets all rules of `fail_next`.
    pub fn clear_failures(&self) {
        self.state.lock().rules.clear();
    }

    /// The remembered writes, oldest first; see [`Options::records`](super::Options::records).
    pub fn writes(&self) -> Vec<Write> {
        self.state.lock().writes.iter().cloned().collect()
    }

    /// Forgets the remembered writes.
    pub fn clear_writes(&self) {
        self.state.lock().writes.clear();
    }

    /// How many of the remembered writes `which` accepts.
    pub fn count_writes(&self, which: impl Fn(&Write) -> bool) -> usize {
        self.state
            .lock()
            .writes
            .iter()
            .filter(|write| which(write))
            .count()
    }

    /// How many write requests there ever were, remembered or not.
    pub fn total_writes(&self) -> u64 {
        self.state.lock().written
    }

    pub(crate) fn watch_lag(&self) -> Duration {
        self.state.lock().watch_lag
    }

    pub(crate) fn spares(&self, user_agent: &str) -> bool {
        let state = self.state.lock();
        let spared = state.spared.as_deref();
        spared.is_some_and(|spared| user_agent.starts_with(spared))
    }

    /// Holds a request whose client died for as long as somebody waits for it.
    pub(crate) async fn freeze(&self) {
        self.frozen.send_modify(|count| *count += 1);
        std::future::pending::<()>().await;
    }

    pub(crate) fn latency(&self) -> Duration {
        self.state.lock().latency
    }

    pub(crate) fn drops(&self) -> watch::Receiver<u64> {
        self.drops.subscribe()
    }

    pub(crate) fn outage(&self) -> watch::Receiver<Outage> {
        self.outage.subscribe()
    }

    /// The failure this request is to meet, if any. Uses up one of its rule.
    pub(crate) fn meet(&self, request: &RequestInfo) -> Option<Failure> {
        let mut state = self.state.lock();
        state.rules.retain(|rule| rule.left > 0);
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| (rule.applies)(request))?;
        rule.left -= 1;
        Some(rule.failure)
    }

    pub(crate) fn record(&self, write: Write) {
        let mut state = self.state.lock();
        state.written += 1;
        if state.capacity > 0 {
            if state.writes.len() == state.capacity {
                state.writes.pop_front();
            }
            state.writes.push_back(write);
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("outage", &*self.outage.borrow())
            .finish_non_exhaustive()
    }
}
