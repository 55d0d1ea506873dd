//! Relays of the protocol to clients outside, such as Playwright: each has a session of its own
//! with the browser and sees the same tabs. Ids are translated; everything else passes unchanged
//! (section 6.2).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Tabs, TargetId};
use crate::cdp::{CdpError, Connection, Event, SessionId};

/// Clients at a time.
const MAX_RELAYS: usize = 16;
/// Messages that wait for a client. One that reads slower than its pages tell is dropped.
const MAX_WAITING: usize = 4096;
/// Their bytes: one message may be larger.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Commands of a client without an answer.
const MAX_UNANSWERED: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("too many clients of the browser")]
    TooMany,
    #[error(transparent)]
    Browser(#[from] CdpError),
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("the message is not a command of the protocol")]
    Malformed,
    #[error("too many commands without an answer")]
    Busy,
}

/// Ends with its drop: the sessions of the client are closed.
#[derive(Debug)]
pub struct Relay {
    client: Arc<Client>,
    connection: Connection,
    messages: mpsc::Receiver<Vec<u8>>,
}

#[derive(Debug)]
struct Client {
    base: SessionId,
    state: Mutex<ClientState>,
    messages: mpsc::Sender<Vec<u8>>,
    waiting_bytes: AtomicUsize,
    /// Cancelled when the client reads too slowly.
    overflow: CancellationToken,
}

#[derive(Debug, Default)]
struct ClientState {
    /// Sessions below the base one.
    sessions: HashSet<SessionId>,
    /// Ids of the client, by ids of the connection.
    unanswered: HashMap<u64, u64>,
}

/// All relays of a connection.
#[derive(Debug, Default)]
pub(super) struct Relays(Mutex<Vec<Weak<Client>>>);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    session_id: String,
}

impl Tabs {
    /// Opens a relay to the browser, or to one tab.
    pub async fn relay(&self, tab: Option<&TargetId>) -> Result<Relay, RelayError> {
        let root = self.root();
        if self.shared.relays.count() >= MAX_RELAYS {
            return Err(RelayError::TooMany);
        }
        let attached: Attached = match tab {
            None => root.call("Target.attachToBrowserTarget", json!({})).await?,
            Some(tab) => {
                let params = json!({"targetId": tab, "flatten": true});
                root.call("Target.attachToTarget", params).await?
            }
        };
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let client = Arc::new(Client {
            base: SessionId::from(attached.session_id.as_str()),
            state: Mutex::default(),
            messages: sender,
            waiting_bytes: AtomicUsize::new(0),
            overflow: CancellationToken::new(),
        });
        self.shared.relays.0.lock().push(Arc::downgrade(&client));
        Ok(Relay {
            client,
            connection: self.connection.clone(),
            messages,
        })
    }
}

impl Relay {
    /// The next message for the client; `None` once the browser has ended, or the client was
    /// too slow.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let message = tokio::select! {
            message = self.messages.recv() => message?,
            () = self.client.overflow.cancelled() => return None,
            () = self.connection.closed() => return None,
        };
        self.client
            .waiting_bytes
            .fetch_sub(message.len(), Ordering::Relaxed);
        Some(message)
    }

    /// Sends a command of the client.
    pub fn send(&self, text: &[u8]) -> Result<(), CommandError> {
        let mut message: Message<'_> =
            serde_json::from_slice(text).map_err(|_| CommandError::Malformed)?;
        let (Some(id), Some(_)) = (message.id, &message.method) else {
            return Err(CommandError::Malformed);
        };
        let mut state = self.client.state.lock();
        let session = message.session_id.take();
        let session = match session.as_deref().map(SessionId::from) {
            None => self.client.base.clone(),
            Some(session) if state.sessions.contains(&session) => session,
            Some(_) => {
                let error = json!({"code": -32001, "message": "Session with given id not found."});
                let answer = json!({"id": id, "error": error, "sessionId": session});
                self.client.enqueue(answer.to_string().into_bytes());
                return Ok(());
            }
        };
        if state.unanswered.len() >= MAX_UNANSWERED {
            return Err(CommandError::Busy);
        }
        let own = self.connection.next_id();
        state.unanswered.insert(own, id);
        drop(state);
        message.id = Some(own);
        message.session_id = Some(session.to_string());
        let text = serde_json::to_vec(&message).map_err(|_| CommandError::Malformed)?;
        if self.connection.try_send_raw(text) {
            return Ok(());
        }
        self.client.state.lock().unanswered.remove(&own);
        Err(CommandError::Busy)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let params = json!({"sessionId": self.client.base.to_string()});
        self.connection
            .root()
            .send("Target.detachFromTarget", params);
    }
}

impl Relays {
    fn count(&self) -> usize {
        let mut relays = self.0.lock();
        relays.retain(|client| client.strong_count() > 0);
        relays.len()
    }

    /// Forwards an event of a client's session. Returns false if it is of another one.
    pub(super) fn forward(&self, event: &Event<'_>) -> bool {
        let Some(client) = self.find(|client| client.owns(&event.session)) else {
            return false;
        };
        let related: Option<Attached> = serde_json::from_str(event.params.get()).ok();
        let related = related.map(|related| SessionId::from(related.session_id.as_str()));
        match (event.method, related) {
            ("Target.attachedToTarget", Some(session)) => {
                client.state.lock().sessions.insert(session);
            }
            ("Target.detachedFromTarget", Some(session)) => {
                client.state.lock().sessions.remove(&session);
            }
            _ => {}
        }
        client.deliver(event.message, None);
        true
    }

    pub(super) fn answer(&self, id: u64, message: &[u8]) {
        let mut theirs = None;
        let client = self.find(|client| {
            theirs = client.state.lock().unanswered.remove(&id);
            theirs.is_some()
        });
        if let Some(client) = client {
            client.deliver(message, theirs);
        }
    }

    fn find(&self, mut is_meant: impl FnMut(&Client) -> bool) -> Option<Arc<Client>> {
        let relays = self.0.lock();
        let mut clients = relays.iter().filter_map(Weak::upgrade);
        clients.find(|client| is_meant(client))
    }
}

impl Client {
    fn owns(&self, session: &SessionId) -> bool {
        *session == self.base || self.state.lock().sessions.contains(session)
    }

    /// Passes a message on, with the id that the client gave and without the base session.
    fn deliver(&self, message: &[u8], id: Option<u64>) {
        let Ok(mut message) = serde_json::from_slice::<Message<'_>>(message) else {
            return;
        };
        message.id = id;
        let base = self.base.to_string();
        message.session_id.take_if(|session| *session == base);
        if let Ok(text) = serde_json::to_vec(&message) {
            self.enqueue(text);
        }
    }

    /// Drops the client if more waits for it than it may.
    fn enqueue(&self, text: Vec<u8>) {
        let length = text.len();
        let waiting = self.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        let is_full = waiting > 0 && waiting + length > MAX_WAITING_BYTES;
        if is_full || self.messages.try_send(text).is_err() {
            self.overflow.cancel();
        }
    }
}
