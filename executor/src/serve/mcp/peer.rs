//! The other end of a connection to a tool server: requests and their answers, whatever carries
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::sessions::Sessions;

/// Requests under way to one server.
const MAX_REQUESTS: usize = 256;
/// Messages on their way to one server.
pub(super) const QUEUE: usize = 64;
/// The newest version of the protocol that is spoken, with servers and with clients.
pub(super) const VERSION: &str = "2025-06-18";
/// What is passed on of the things that servers tell.
pub(super) const CHANGES: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PeerError {
    /// The error object of a JSON-RPC answer.
    #[error("{}", message(.0))]
    Answer(Value),
    #[error("{0}")]
    Gone(String),
    #[error("no answer within {} seconds", .0.as_secs())]
    Silent(Duration),
    #[error("too many requests at once")]
    Busy,
}

fn message(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str);
    text.map_or_else(|| error.to_string(), str::to_owned)
}

/// Why a connection has ended, and when.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) reason: String,
    pub(super) at: Instant,
}

impl End {
    pub(super) fn now(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            at: Instant::now(),
        }
    }
}

/// Sends requests and waits for answers.
#[derive(Debug)]
pub(super) struct Peer {
    outgoing: mpsc::Sender<Value>,
    inbox: Inbox,
    numbers: AtomicU64,
    gone: watch::Receiver<Option<End>>,
}

/// Takes what comes from the server.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    waiting: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>,
    outgoing: mpsc::WeakSender<Value>,
    /// Of clients.
    sessions: Sessions,
}

/// A request that nobody waits for any more is forgotten.
struct Waiting<'a>(&'a Inbox, u64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().remove(&self.1);
    }
}

impl Peer {
    /// With the queue of what is to be sent and the place for what is received.
    pub(super) fn new(
        gone: watch::Receiver<Option<End>>,
        sessions: Sessions,
    ) -> (Self, mpsc::Receiver<Value>, Inbox) {
        let (outgoing, queue) = mpsc::channel(QUEUE);
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

    /// Agrees on the protocol; the first thing to do.
    pub(super) async fn greet(&self, limit: Duration) -> Result<(), PeerError> {
        let params = json!({"protocolVersion": VERSION, "capabilities": {},
            "clientInfo": {"name": "sandbox-executor", "version": env!("CARGO_PKG_VERSION")}});
        self.call("initialize", params, limit).await?;
        self.send(
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            limit,
        )
        .await
    }

    /// The result of a method.
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
        let _waiting = Waiting(&self.inbox, number);
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        self.send(request, limit).await?;
        let mut gone = self.gone.clone();
        let mut answer = tokio::select! {
            // An answer counts also if it was the last thing that was said.
            biased;
            Ok(answer) = receiver => answer,
            () = tokio::time::sleep(limit) => return Err(PeerError::Silent(limit)),
            _ = gone.wait_for(Option::is_some) => return Err(self.farewell()),
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
                Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(self.farewell()),
            },
            _ = gone.wait_for(Option::is_some) => Err(self.farewell()),
        }
    }

    /// Of one that is gone.
    pub(super) fn end(&self) -> End {
        let end = self.gone.borrow().clone();
        end.unwrap_or_else(|| End::now("the connection has ended"))
    }

    fn farewell(&self) -> PeerError {
        PeerError::Gone(self.end().reason)
    }
}

impl Inbox {
    /// Gives an answer to who waits for it, and answers the few questions that servers ask.
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
            (None, Some(method)) if CHANGES.contains(&method) => self.sessions.tell(method),
            // Nobody has asked for their logs and their progress.
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
        // A server that asks more than it reads gets no answer.
        if let Some(outgoing) = self.outgoing.upgrade() {
            let _ = outgoing.try_send(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn answers_find_their_requests() {
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
            peer.call("a", json!({}), LIMIT),
            peer.call("b", json!({}), LIMIT)
        );
        assert_eq!(first.unwrap_err().to_string(), "no");
        assert_eq!(second.unwrap(), "b");
        let (pong, refusal, queue) = server.await.unwrap();
        assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
        assert_eq!(refusal["error"]["code"], -32601);
        let silent = peer.call("c", json!({}), LIMIT).await.unwrap_err();
        assert_eq!(silent.to_string(), "no answer within 1 seconds");
        assert!(peer.inbox.waiting.lock().is_empty());
        end.send(Some(End::now("exit status 1"))).unwrap();
        assert!(peer.is_gone());
        let gone = peer.call("d", json!({}), LIMIT).await.unwrap_err();
        assert_eq!(gone.to_string(), "exit status 1");
        drop(queue);
    }
}
