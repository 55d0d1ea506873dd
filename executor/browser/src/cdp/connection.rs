//! One connection: numbers commands, hands answers to their callers and events to a sink.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::CdpError;
use super::message::{Command, Incoming};
use super::pipe::{MessageReader, MessageWriter, Pipe};
use super::session::{Session, SessionId};

/// Commands on their way to Chromium. A browser that takes none for so long is stuck.
const MAX_QUEUED_COMMANDS: usize = 4096;
/// Part of them that commands of clients outside leave free.
const RESERVED_COMMANDS: usize = MAX_QUEUED_COMMANDS / 2;

/// Receives the events of all sessions, in order, on the task that reads the pipe: it must not
/// wait for anything.
pub trait EventSink: Send + Sync + 'static {
    fn event(&self, event: &Event<'_>);
    /// Gets the answer to a command that was sent by [`Connection::send_raw`]: the whole message.
    fn raw_answer(&self, id: u64, message: &[u8]);
}

#[derive(Debug)]
pub struct Event<'a> {
    pub session: SessionId,
    pub method: &'a str,
    pub params: &'a RawValue,
    /// The whole message.
    pub message: &'a [u8],
}

type CallResult = Result<Box<RawValue>, CdpError>;

/// Open as long as the browser runs.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    commands: mpsc::Sender<Vec<u8>>,
    calls: Mutex<Calls>,
    next_id: AtomicU64,
    closed: CancellationToken,
}

#[derive(Default)]
struct Calls {
    waiting: HashMap<u64, (&'static str, oneshot::Sender<CallResult>)>,
    is_closed: bool,
}

impl Connection {
    /// Starts to read and write; `sink` gets the events.
    pub fn open(pipe: Pipe, sink: Arc<dyn EventSink>) -> io::Result<Self> {
        let (reader, writer) = pipe.split()?;
        let (commands, queue) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let closed = CancellationToken::new();
        let shared = Arc::new(Shared {
            commands,
            calls: Mutex::default(),
            next_id: AtomicU64::new(1),
            closed: closed.clone(),
        });
        tokio::spawn(write_commands(writer, queue, closed));
        tokio::spawn(read_messages(reader, Arc::clone(&shared), sink));
        Ok(Self(shared))
    }

    /// Session of the browser itself.
    pub fn root(&self) -> Session {
        Session::new(self.clone(), SessionId::root())
    }

    pub fn session(&self, id: SessionId) -> Session {
        Session::new(self.clone(), id)
    }

    pub fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    /// Waits until Chromium has closed its side.
    pub async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Sends a command without waiting for its answer.
    pub(super) fn send(&self, session: &SessionId, method: &str, params: impl Serialize) {
        let id = self.next_id();
        self.enqueue(id, session, method, params);
    }

    pub(super) async fn call(
        &self,
        session: &SessionId,
        method: &'static str,
        params: impl Serialize,
    ) -> CallResult {
        let id = self.next_id();
        let (sender, receiver) = oneshot::channel();
        {
            let mut calls = self.0.calls.lock();
            if calls.is_closed {
                return Err(CdpError::Closed);
            }
            calls.waiting.insert(id, (method, sender));
        }
        let _forget = ForgetOnDrop(&self.0, id);
        self.enqueue(id, session, method, params);
        receiver.await.unwrap_or(Err(CdpError::Closed))
    }

    /// Number for a command; unique in this connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a complete message, whose answer goes to [`EventSink::raw_answer`]. Returns false if too
    /// many commands wait: the last of them are for the owner of the connection.
    pub(crate) fn try_send_raw(&self, message: Vec<u8>) -> bool {
        self.0.commands.capacity() > RESERVED_COMMANDS && self.0.commands.try_send(message).is_ok()
    }

    fn enqueue(&self, id: u64, session: &SessionId, method: &str, params: impl Serialize) {
        let command = Command {
            id,
            method,
            params,
            session_id: session.as_option(),
        };
        match serde_json::to_vec(&command) {
            Ok(message) => {
                if self.0.commands.try_send(message).is_err() {
                    self.0.closed.cancel();
                }
            }
            Err(error) => tracing::warn!(%error, method, "cannot serialize a command"),
        }
    }
}

impl Debug for Connection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A caller that gives up does not leave its entry.
struct ForgetOnDrop<'a>(&'a Shared, u64);

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().waiting.remove(&self.1);
    }
}

async fn write_commands(
    mut writer: MessageWriter,
    mut queue: mpsc::Receiver<Vec<u8>>,
    closed: CancellationToken,
) {
    let writing = async {
        while let Some(message) = queue.recv().await {
            if writer.write(message).await.is_err() {
                break;
            }
        }
    };
    closed.run_until_cancelled(writing).await;
    closed.cancel();
}

async fn read_messages(mut reader: MessageReader, shared: Arc<Shared>, sink: Arc<dyn EventSink>) {
    let reading = async {
        loop {
            match reader.next().await {
                Ok(Some(message)) => shared.deliver(message, &*sink),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot read from the browser");
                    break;
                }
            }
        }
    };
    shared.closed.run_until_cancelled(reading).await;
    shared.closed.cancel();
    let mut calls = shared.calls.lock();
    calls.is_closed = true;
    calls.waiting.clear();
}

impl Shared {
    fn deliver(&self, message: &[u8], sink: &dyn EventSink) {
        tracing::trace!(text = %String::from_utf8_lossy(&message[..message.len().min(300)]));
        let incoming: Incoming<'_> = match serde_json::from_slice(message) {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!(%error, "malformed message of the browser");
                return;
            }
        };
        if let Some(id) = incoming.id {
            let call = self.calls.lock().waiting.remove(&id);
            let Some((method, sender)) = call else {
                sink.raw_answer(id, message);
                return;
            };
            let _ = sender.send(answer(method, incoming));
        } else if let (Some(method), Some(params)) = (&incoming.method, incoming.params) {
            let session = incoming.session_id.as_deref().map(SessionId::from);
            sink.event(&Event {
                session: session.unwrap_or_default(),
                method,
                params,
                message,
            });
        }
    }
}

fn answer(method: &'static str, incoming: Incoming<'_>) -> CallResult {
    if let Some(error) = incoming.error {
        let details = error.data.map(|data| format!(" {data}"));
        let message = error.message + details.as_deref().unwrap_or_default();
        return Err(CdpError::Protocol { method, message });
    }
    incoming
        .result
        .map(ToOwned::to_owned)
        .ok_or(CdpError::Closed)
}
