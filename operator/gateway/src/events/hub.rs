//! Changes of one tenant on their way to its streams, in one ring that all streams share. A stream
//! that falls behind by its length ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::broadcast;

use super::message::Message;
use super::{Events, ResponseAbort};

/// Messages that a stream may fall behind, of about 1 KiB each. A power of two, to which the channel
/// rounds up.
const QUEUE_LENGTH: u64 = 256;
/// Messages between two looks for clients that read nothing.
const STALL_CHECK_INTERVAL: u64 = QUEUE_LENGTH / 4;

#[derive(Debug)]
pub(super) struct Hub {
    sender: broadcast::Sender<Arc<Message>>,
    published: u64,
    /// Number of the last change in the index.
    last_sequence: u64,
    readers: HashMap<u64, Arc<Reader>>,
}

/// Progress of one stream.
#[derive(Debug)]
struct Reader {
    /// Number of the last message that it has read.
    read: AtomicU64,
    connection: ResponseAbort,
}

/// Subscription of one stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    events: Arc<Events>,
    tenant: String,
    id: u64,
    reader: Arc<Reader>,
    receiver: broadcast::Receiver<Arc<Message>>,
}

impl Default for Hub {
    fn default() -> Self {
        let length = usize::try_from(QUEUE_LENGTH).unwrap_or(usize::MAX);
        Self {
            sender: broadcast::Sender::new(length),
            published: 0,
            last_sequence: 0,
            readers: HashMap::new(),
        }
    }
}

impl Hub {
    pub(super) fn stream_count(&self) -> usize {
        self.readers.len()
    }

    pub(super) fn subscribe(&mut self, events: Arc<Events>, tenant: &str, id: u64) -> Subscription {
        let reader = Arc::new(Reader {
            read: AtomicU64::new(self.published),
            connection: ResponseAbort::default(),
        });
        self.readers.insert(id, reader.clone());
        Subscription {
            events,
            tenant: tenant.to_owned(),
            id,
            reader,
            receiver: self.sender.subscribe(),
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.readers.remove(&id);
    }

    /// Sends a message to all streams. Returns the number of clients whose response is ended
    /// because they read nothing.
    pub(super) fn publish(&mut self, mut message: Message) -> u64 {
        if let Some(change) = &message.change {
            // A follower that was replaced a moment ago may still pass on what the next one has, and later.
            if change.sequence <= self.last_sequence {
                return 0;
            }
            self.last_sequence = change.sequence;
        }
        self.published += 1;
        message.number = self.published;
        // Fails only without receivers.
        let _ = self.sender.send(Arc::new(message));
        if !self.published.is_multiple_of(STALL_CHECK_INTERVAL) {
            return 0;
        }
        let published = self.published;
        let stalled = self.readers.values().filter(|reader| {
            let behind = published.saturating_sub(reader.read.load(Ordering::Relaxed));
            behind > QUEUE_LENGTH && reader.connection.abort()
        });
        stalled.fold(0, |count, _| count + 1)
    }

    /// Ends all streams after the messages that they have.
    pub(super) fn close(&mut self) {
        self.sender = Self::default().sender;
    }
}

impl Subscription {
    pub(super) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Extension of the response, by which it is ended if the client reads nothing.
    pub(crate) fn connection(&self) -> ResponseAbort {
        self.reader.connection.clone()
    }

    /// Waits for the next message. `None` if messages are lost.
    pub(super) async fn next(&mut self) -> Option<Arc<Message>> {
        let message = self.receiver.recv().await.ok()?;
        self.note_read(&message);
        Some(message)
    }

    /// Returns the next message, if there is one.
    pub(super) fn try_next(&mut self) -> Result<Arc<Message>, broadcast::error::TryRecvError> {
        let message = self.receiver.try_recv()?;
        self.note_read(&message);
        Ok(message)
    }

    fn note_read(&self, message: &Message) {
        self.reader.read.store(message.number, Ordering::Relaxed);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.events.unsubscribe(&self.tenant, self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use shared::index::Key;

    use super::super::message::Change;
    use super::*;

    fn change(sequence: u64) -> Message {
        let mut message = Message::build("{}");
        message.change = Some(Change {
            key: Key::default(),
            sequence,
            is_removed: false,
        });
        message
    }

    #[test]
    fn older_change_is_not_sent_after_a_newer_one() {
        let mut hub = Hub::default();
        let mut receiver = hub.sender.subscribe();
        for sequence in [1, 3, 2, 3, 4] {
            hub.publish(change(sequence));
        }
        let sent = iter::from_fn(|| receiver.try_recv().ok());
        let sent = sent.map(|message| message.change.as_ref().unwrap().sequence);
        assert_eq!(sent.collect::<Vec<_>>(), [1, 3, 4]);
    }
}
