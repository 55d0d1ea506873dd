//! One tool server: started when it is needed, and again when it has ended, ever more slowly.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::{Config, Transport};
use super::peer::{Peer, PeerError};
use super::sessions::Sessions;
use super::{http, stdio};
use crate::serve::shell::Start;

/// For a server to come up; some are downloaded first.
const START_LIMIT: Duration = Duration::from_mins(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A server that has lived so long is no failure when it ends.
const SETTLED: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct Server {
    config: Config,
    start: Start,
    /// Of clients, who are told of changes.
    sessions: Sessions,
    state: Mutex<State>,
    /// Not to be started any more.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    failures: u32,
    /// Not to be started before.
    not_before: Option<Instant>,
    last_error: String,
}

#[derive(Debug)]
struct Running {
    peer: Arc<Peer>,
    carrier: Carrier,
    since: Instant,
}

/// What keeps the connection.
#[derive(Debug)]
enum Carrier {
    Process(stdio::Process),
    Link(http::Link),
}

impl Server {
    pub(super) fn new(config: Config, start: Start, sessions: Sessions) -> Self {
        Self {
            config,
            start,
            sessions,
            state: Mutex::default(),
            ended: CancellationToken::new(),
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, PeerError> {
        let peer = self.peer().await?;
        peer.call(method, params, limit).await
    }

    /// A connection that has been greeted.
    ///
    /// # Errors
    /// Why the server cannot be started, also while it is too early to try again.
    pub(super) async fn peer(self: &Arc<Self>) -> Result<Arc<Peer>, PeerError> {
        let server = Arc::clone(self);
        // A start that nobody waits for any more still has to be completed or undone.
        let peer = tokio::spawn(async move { server.find_peer().await });
        peer.await.unwrap_or_else(|_| Err(removed()))
    }

    async fn find_peer(&self) -> Result<Arc<Peer>, PeerError> {
        let mut state = self.state.lock().await;
        if self.ended.is_cancelled() {
            return Err(removed());
        }
        if let Some(running) = &state.running {
            if !running.peer.is_gone() {
                return Ok(Arc::clone(&running.peer));
            }
            let (end, since) = (running.peer.end(), running.since);
            state.put_away().await;
            if end.at.duration_since(since) >= SETTLED {
                state.failures = 0;
            }
            state.fail(&end.reason, end.at);
        }
        if state.pauses(Instant::now()) {
            return Err(PeerError::Gone(state.last_error.clone()));
        }
        match self.launch().await {
            Ok(running) => {
                let peer = Arc::clone(&running.peer);
                state.running = Some(running);
                Ok(peer)
            }
            Err(error) => {
                state.fail(&error.to_string(), Instant::now());
                Err(error)
            }
        }
    }

    async fn launch(&self) -> Result<Running, PeerError> {
        let cannot = |error: std::io::Error| PeerError::Gone(format!("cannot start it: {error}"));
        let (peer, carrier) = match &self.config.transport {
            Transport::Stdio {
                command,
                arguments,
                environment,
            } => {
                let (start, sessions) = (&self.start, self.sessions.clone());
                let started = stdio::start(command, arguments, environment, start, sessions);
                let (peer, process) = started.map_err(cannot)?;
                (peer, Carrier::Process(process))
            }
            Transport::Http {
                url,
                headers,
                is_sse,
            } => {
                let connecting = http::connect(url, headers, *is_sse, self.sessions.clone());
                let (peer, link) = connecting.await.map_err(cannot)?;
                (peer, Carrier::Link(link))
            }
        };
        let running = Running {
            peer: Arc::new(peer),
            carrier,
            since: Instant::now(),
        };
        let greeted = tokio::select! {
            greeted = running.peer.greet(START_LIMIT) => greeted,
            () = self.ended.cancelled() => Err(removed()),
        };
        match greeted {
            Ok(()) => Ok(running),
            Err(error) => {
                running.end().await;
                Err(error)
            }
        }
    }

    /// Ends it for good.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        let mut state = self.state.lock().await;
        state.put_away().await;
    }
}

fn removed() -> PeerError {
    PeerError::Gone("the server was removed".to_owned())
}

impl State {
    async fn put_away(&mut self) {
        if let Some(running) = self.running.take() {
            running.end().await;
        }
    }

    /// It has ended or could not be started at that time.
    fn fail(&mut self, error: &str, at: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(at + pause.min(LONGEST_PAUSE));
        error.clone_into(&mut self.last_error);
    }

    /// Whether it is too early for another try. The first time there is no pause.
    fn pauses(&self, now: Instant) -> bool {
        self.failures > 1 && self.not_before.is_some_and(|time| now < time)
    }
}

impl Running {
    async fn end(self) {
        match self.carrier {
            Carrier::Process(process) => process.end().await,
            Carrier::Link(link) => drop(link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_begin_with_the_end() {
        let mut state = State::default();
        let mut seconds = Vec::new();
        let start = Instant::now();
        for _ in 0..9 {
            state.fail("why", start);
            let ends = state.not_before.unwrap_or(start);
            assert!(!state.pauses(ends));
            let pauses = state.pauses(start);
            seconds.push(if pauses { (ends - start).as_secs() } else { 0 });
        }
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        // One that was missed by nobody for a while may be started at once.
        assert!(!state.pauses(start + LONGEST_PAUSE));
    }
}
