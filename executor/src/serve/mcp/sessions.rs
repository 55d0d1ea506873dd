//! Event streams of clients of the older transport (`docs/specs/executor.md`, section 8.3).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval};

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
pub(in crate::serve) struct Sessions(Arc<Mutex<BTreeMap<String, mpsc::Sender<Bytes>>>>);

impl Sessions {
    /// Opens a stream. Its first event is the URL for messages. Returns `None` if there are too
    /// many.
    pub(in crate::serve) fn open(&self, running: ActivityGuard) -> Option<Stream> {
        let id = private_dir::token().ok()?;
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let endpoint = format!("event: endpoint\r\ndata: messages/?session_id={id}\r\n\r\n");
        sender.try_send(endpoint.into()).ok()?;
        let mut sessions = self.0.lock();
        if sessions.len() >= MAX_SESSIONS {
            return None;
        }
        sessions.insert(id.clone(), sender);
        Some(Stream {
            id,
            sessions: self.clone(),
            receiver,
            ping: tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL),
            _running: running,
        })
    }

    /// Finds the stream of a client.
    pub(in crate::serve) fn find(&self, id: &str) -> Option<Session> {
        self.0.lock().get(id).cloned().map(Session)
    }

    /// Sends a notification to all clients. A client whose queue is full misses it.
    pub(super) fn broadcast(&self, method: &str) {
        let event = event(&json!({"jsonrpc": "2.0", "method": method}));
        for client in self.0.lock().values() {
            let _ = client.try_send(event.clone());
        }
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        self.0.lock().clear();
    }
}

#[derive(Debug)]
pub(in crate::serve) struct Session(mpsc::Sender<Bytes>);

impl Session {
    pub(in crate::serve) async fn send(&self, message: &Value) {
        // Dropped if the client is gone or does not read.
        let _ = self.0.send_timeout(event(message), SEND_TIMEOUT).await;
    }
}

fn event(message: &Value) -> Bytes {
    format!("event: message\r\ndata: {message}\r\n\r\n").into()
}

/// Response body of events. Ends when the client disconnects or the server stops.
pub(in crate::serve) struct Stream {
    id: String,
    sessions: Sessions,
    receiver: mpsc::Receiver<Bytes>,
    ping: Interval,
    /// Keeps the sandbox active while the stream is open.
    _running: ActivityGuard,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(event) = self.receiver.poll_recv(context) {
            return Poll::Ready(event.map(|event| Ok(Frame::data(event))));
        }
        ready!(self.ping.poll_tick(context));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": ping\r\n\r\n")))))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.sessions.0.lock().remove(&self.id);
    }
}
