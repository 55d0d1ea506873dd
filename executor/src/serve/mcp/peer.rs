//! JSON-RPC peer of a tool server: requests and their responses over any transport.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::sessions::Sessions;

/// Requests in flight to one server.
const MAX_REQUESTS: usize = 256;
/// Queued messages to one server.
const QUEUE_CAPACITY: usize = 64;
/// Newest supported protocol version, for tool servers and clients.
pub(super) const VERSION: &str = "2025-06-18";
/// Notifications of tool servers that are forwarded to clients.
pub(super) const FORWARDED_NOTIFICATIONS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PeerError {
    /// Error object of a JSON-RPC response.
    #[error("{}", message(.0))]
    Answer(Value),
    #[error("{0}")]
    Gone(String),
    #[error("no response within {} seconds", .0.as_secs())]
    Silent(Duration),
    #[error("too many concurrent requests")]
    Busy,
}

fn message(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str);
    text.map_or_else(|| error.to_string(), str::to_owned)
}

#[derive(Debug, Clone)]
pub(super) struct ConnectionEnd {
    pub(super) reason: String,
    pub(super) at: Instant,
}

impl ConnectionEnd {
    pub(super) fn now(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            at: Instant::now(),
        }
    }
}

/// Sends requests and waits for responses.
#[derive(Debug)]
pub(super) struct Peer {
    outgoing: mpsc::Sender<Value>,
    inbox: Inbox,
    numbers: AtomicU64,
    gone: watch::Receiver<Option<ConnectionEnd>>,
}

#[derive(Debug, Clone)]
pub(super) struct Inbox {
    waiting: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>,
    outgoing: mpsc::WeakSender<Value>,
    /// Event streams of clients.
    sessions: Sessions,
}

/// Removes the request when the caller stops waiting.
struct PendingRequest<'a>(&'a Inbox, u64);

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().remove(&self.1);
    }
}

impl Peer {
    pub(super) fn new(
        gone: watch::Receiver<Option<ConnectionEnd>>,
        sessions: Sessions,
    ) -> (Self, mpsc::Receiver<Value>, Inbox) {
        let (outgoing, queue) = mpsc::channel(QUEUE_CAPACITY);
        let inbox = Inbox {
            waiting: Arc::default(),
            outgoing: outgoing.downgrade(),
            sessions,
        };
        let peer = Self {
            outgoing,
            inbox: inbox.clone(),
            numbers: AtomicU64::new(0),
            gone,
        };
        (peer, queue, inbox)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some() || self.gone.has_changed().is_err()
    }

    /// Negotiates the protocol version. Must be the first call.
    pub(super) async fn initialize(&self, limit: Duration) -> Result<(), PeerError> {
        let params = json!({"protocolVersion": VERSION, "capabilities": {},
            "clientInfo": {"name": "sandbox-executor", "version": env!("CARGO_PKG_VERSION")}});
        self.call("initialize", params, limit).await?;
        self.send(
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            limit,
        )
        .await
    }

    pub(super) async fn call(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, PeerError> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.inbox.waiting.lock();
            if waiting.len() >= MAX_REQUESTS {
                return Err(PeerError::Busy);
            }
            waiting.insert(number, sender);
        }
        let _waiting = PendingRequest(&self.inbox, number);
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        self.send(request, limit).await?;
        let mut gone = self.gone.clone();
        let mut answer = tokio::select! {
            // A response that arrived just before the end of the connection is valid.
            biased;
            Ok(answer) = receiver => answer,
            () = tokio::time::sleep(limit) => return Err(PeerError::Silent(limit)),
            _ = gone.wait_for(Option::is_some) => return Err(self.gone_error()),
        };
        match answer.get_mut("error") {
            Some(error) => Err(PeerError::Answer(error.take())),
            None => Ok(answer
                .get_mut("result")
                .map(Value::take)
                .unwrap_or_default()),
        }
    }

    async fn send(&self, message: Value, limit: Duration) -> Result<(), PeerError> {
        let mut gone = self.gone.clone();
        tokio::select! {
            sent = self.outgoing.send_timeout(message, limit) => match sent {
                Ok(()) => Ok(()),
                Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(PeerError::Silent(limit)),
                Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(self.gone_error()),
            },
            _ = gone.wait_for(Option::is_some) => Err(self.gone_error()),
        }
    }

    pub(super) fn end(&self) -> ConnectionEnd {
        let end = self.gone.borrow().clone();
        end.unwrap_or_else(|| ConnectionEnd::now("the connection has ended"))
    }

    fn gone_error(&self) -> PeerError {
        PeerError::Gone(self.end().reason)
    }
}

impl Inbox {
    /// Delivers a response to its caller, and replies to requests of the server.
    pub(super) fn take(&self, message: Value) {
        if let Value::Array(messages) = message {
            for message in messages {
                self.take(message);
            }
            return;
        }
        let id = message.get("id").filter(|id| !id.is_null());
        match (id, message.get("method").and_then(Value::as_str)) {
            (Some(id), Some(method)) => self.reply(id, method),
            (Some(id), None) => {
                let waiting = id.as_u64().and_then(|id| self.waiting.lock().remove(&id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(message);
                }
            }
            (None, Some(method)) if FORWARDED_NOTIFICATIONS.contains(&method) => {
                self.sessions.broadcast(method);
            }
            // Logs and progress are dropped: no client can subscribe to them.
            (None, _) => {}
        }
    }

    fn reply(&self, id: &Value, method: &str) {
        let reply = if method == "ping" {
            json!({"jsonrpc": "2.0", "id": id, "result": {}})
        } else {
            let error = json!({"code": -32601, "message": format!("Method not found: {method}")});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        };
        // Dropped if the server sends more requests than it reads replies.
        if let Some(outgoing) = self.outgoing.upgrade() {
            let _ = outgoing.try_send(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn call_returns_matching_response() {
        let (end, gone) = watch::channel(None);
        let (peer, mut queue, inbox) = Peer::new(gone, Sessions::default());
        let server = tokio::spawn(async move {
            let (first, second) = (queue.recv().await.unwrap(), queue.recv().await.unwrap());
            inbox.take(json!({"id": 99, "result": 0}));
            inbox.take(json!([{"id": second["id"], "result": second["method"]}]));
            inbox.take(json!({"id": first["id"], "error": {"code": 1, "message": "no"}}));
            inbox.take(json!({"id": "x", "method": "ping"}));
            inbox.take(json!({"id": 5, "method": "roots/list"}));
            (
                queue.recv().await.unwrap(),
                queue.recv().await.unwrap(),
                queue,
            )
        });
        let (first, second) = tokio::join!(
            peer.call("a", json!({}), TEST_TIMEOUT),
            peer.call("b", json!({}), TEST_TIMEOUT)
        );
        assert_eq!(first.unwrap_err().to_string(), "no");
        assert_eq!(second.unwrap(), "b");
        let (pong, refusal, queue) = server.await.unwrap();
        assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
        assert_eq!(refusal["error"]["code"], -32601);
        let silent = peer.call("c", json!({}), TEST_TIMEOUT).await.unwrap_err();
        assert_eq!(silent.to_string(), "no response within 1 seconds");
        assert!(peer.inbox.waiting.lock().is_empty());
        end.send(Some(ConnectionEnd::now("exit status 1"))).unwrap();
        assert!(peer.is_gone());
        let gone = peer.call("d", json!({}), TEST_TIMEOUT).await.unwrap_err();
        assert_eq!(gone.to_string(), "exit status 1");
        drop(queue);
    }
}
