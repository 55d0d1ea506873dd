//! One tool server: started on demand, and restarted with a backoff.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::config::{Config, Transport};
use super::peer::{Peer, PeerError};
use super::sessions::Sessions;
use super::{http, stdio};
use crate::serve::process_group::ProcessGroup;
use crate::serve::shell::LaunchContext;

/// Time for a start; some servers are downloaded first.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// Run time after which an end resets the backoff.
const STABLE_AFTER: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Config,
    start: LaunchContext,
    /// Event streams of clients, for notifications.
    sessions: Sessions,
    state: Mutex<ServerState>,
    /// Removed by an update or at shutdown; prevents further starts.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct ServerState {
    running: Option<RunningServer>,
    failures: u32,
    /// Earliest time of the next start.
    not_before: Option<Instant>,
    last_error: String,
}

#[derive(Debug)]
struct RunningServer {
    peer: Arc<Peer>,
    since: Instant,
    /// Processes of a local server.
    group: Option<ProcessGroup>,
    /// Tasks of the connection, which end when it is dropped.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Server {
    pub(super) fn new(config: Config, start: LaunchContext, sessions: Sessions) -> Self {
        Self {
            config,
            start,
            sessions,
            state: Mutex::default(),
            ended: CancellationToken::new(),
        }
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

    /// Returns an initialized connection; starts the server if necessary. The error is the reason
    /// of the failed start, also during the backoff.
    pub(super) async fn peer(self: &Arc<Self>) -> Result<Arc<Peer>, PeerError> {
        let server = Arc::clone(self);
        // A start whose caller is gone still has to be completed or undone.
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
            state.discard_ended().await;
            if end.at.duration_since(since) >= STABLE_AFTER {
                state.failures = 0;
            }
            state.fail(&end.reason, end.at);
        }
        if state.is_backing_off(Instant::now()) {
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

    async fn launch(&self) -> Result<RunningServer, PeerError> {
        let cannot = |error: std::io::Error| PeerError::Gone(format!("cannot start it: {error}"));
        let sessions = self.sessions.clone();
        let (peer, group, tasks) = match &self.config.transport {
            Transport::Stdio(local) => {
                let started = stdio::start(local, &self.start, sessions).await;
                let (peer, group, tasks) = started.map_err(cannot)?;
                (peer, Some(group), tasks.into())
            }
            Transport::Http(remote) => {
                let (peer, task) = http::connect(remote, sessions).await.map_err(cannot)?;
                (peer, None, vec![task])
            }
        };
        let running = RunningServer {
            peer: Arc::new(peer),
            since: Instant::now(),
            group,
            _tasks: tasks,
        };
        let initialized = tokio::select! {
            initialized = running.peer.initialize(START_TIMEOUT) => initialized,
            () = self.ended.cancelled() => Err(removed()),
        };
        match initialized {
            Ok(()) => Ok(running),
            Err(error) => {
                running.end().await;
                Err(error)
            }
        }
    }

    /// Ends the server and prevents further starts.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        let mut state = self.state.lock().await;
        state.discard_ended().await;
    }
}

fn removed() -> PeerError {
    PeerError::Gone("the server was removed".to_owned())
}

impl ServerState {
    async fn discard_ended(&mut self) {
        if let Some(running) = self.running.take() {
            running.end().await;
        }
    }

    /// Records the end or the failed start.
    fn fail(&mut self, error: &str, at: Instant) {
        let backoff = INITIAL_BACKOFF.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(at + backoff.min(MAX_BACKOFF));
        error.clone_into(&mut self.last_error);
    }

    /// Returns whether it is too early for a start. The first failure has no backoff.
    fn is_backing_off(&self, now: Instant) -> bool {
        self.failures > 1 && self.not_before.is_some_and(|time| now < time)
    }
}

impl RunningServer {
    async fn end(self) {
        if let Some(group) = &self.group {
            group.kill().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoff_doubles_from_second_failure() {
        let mut state = ServerState::default();
        let mut seconds = Vec::new();
        let start = Instant::now();
        for _ in 0..9 {
            state.fail("why", start);
            let ends = state.not_before.unwrap_or(start);
            assert!(!state.is_backing_off(ends));
            let pauses = state.is_backing_off(start);
            seconds.push(if pauses { (ends - start).as_secs() } else { 0 });
        }
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        // A server that was not used for a while may start at once.
        assert!(!state.is_backing_off(start + MAX_BACKOFF));
    }
}
