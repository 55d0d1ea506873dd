//! Event streams of clients of the older transport (`docs/specs/executor.md`, section 8.3).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::serve::activity::ActivityGuard;
use crate::serve::private_dir;

const MAX_SESSIONS: usize = 128;
/// Queued events of one client.
const QUEUE_CAPACITY: usize = 64;
/// Time that a client may not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of comments that keep proxies from closing an idle stream.
const PING_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<BTreeMap<String, mpsc::Sender<Bytes>>>>);

impl Sessions {
    /// Opens a stream, the body of a response. Its first event is the URL for messages. It ends when
    /// the client disconnects or the server stops. Returns `None` if there are too many.
    pub(crate) fn open(&self, running: ActivityGuard) -> Option<Body> {
        let id = private_dir::token().ok()?;
        let (sender, mut receiver) = mpsc::channel(QUEUE_CAPACITY);
        let endpoint = format!("event: endpoint\r\ndata: messages/?session_id={id}\r\n\r\n");
        sender.try_send(endpoint.into()).ok()?;
        let mut sessions = self.0.lock();
        if sessions.len() >= MAX_SESSIONS {
            return None;
        }
        sessions.insert(id.clone(), sender);
        let guard = SessionGuard {
            id,
            sessions: self.clone(),
            _running: running,
        };
        let mut ping = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        let events = stream::poll_fn(move |context| {
            let _guard = &guard;
            if let Poll::Ready(event) = receiver.poll_recv(context) {
                return Poll::Ready(event);
            }
            let ping = ping.poll_tick(context);
            ping.map(|_| Some(Bytes::from_static(b": ping\r\n\r\n")))
        });
        Some(Body::from_stream(events.map(Ok::<_, Infallible>)))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Session> {
        self.0.lock().get(id).cloned().map(Session)
    }

    /// Sends a notification to all clients. A client whose queue is full misses it.
    pub(super) fn broadcast(&self, method: &str) {
        let event = event(&json!({"jsonrpc": "2.0", "method": method}));
        for client in self.0.lock().values() {
            let _ = client.try_send(event.clone());
        }
    }

    pub(super) fn close(&self) {
        self.0.lock().clear();
    }
}

#[derive(Debug)]
pub(crate) struct Session(mpsc::Sender<Bytes>);

impl Session {
    pub(crate) async fn send(&self, message: &Value) {
        // Dropped if the client is gone or does not read.
        let _ = self.0.send_timeout(event(message), SEND_TIMEOUT).await;
    }
}

fn event(message: &Value) -> Bytes {
    format!("event: message\r\ndata: {message}\r\n\r\n").into()
}

/// Keeps the session and the sandbox active while its stream is open.
struct SessionGuard {
    id: String,
    sessions: Sessions,
    _running: ActivityGuard,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.sessions.0.lock().remove(&self.id);
    }
}
