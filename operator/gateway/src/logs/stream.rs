//! One log on its way to one client. The stream ends when the log does, when the API key is revoked,
//! or when the replica drains.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::LogPermits;
use crate::events::{KEEP_ALIVE, KeyCheck, ResponseAbort};

/// Interval of comments that keep the connection open, and of checks of the API key.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct LogStream {
    events: mpsc::Receiver<Bytes>,
    key: KeyCheck,
    stopping: CancellationToken,
    connection: ResponseAbort,
    tick: Pin<Box<Sleep>>,
    _reading: (AbortOnDropHandle<()>, LogPermits),
}

impl LogStream {
    pub(super) fn new(
        events: mpsc::Receiver<Bytes>,
        key: KeyCheck,
        stopping: CancellationToken,
        connection: ResponseAbort,
        reading: (AbortOnDropHandle<()>, LogPermits),
    ) -> Self {
        Self {
            events,
            key,
            stopping,
            connection,
            tick: Box::pin(sleep(KEEP_ALIVE_INTERVAL)),
            _reading: reading,
        }
    }

    /// Extension of the response, by which it is ended if the client reads nothing.
    pub(crate) fn connection(&self) -> ResponseAbort {
        self.connection.clone()
    }

    /// Returns the next bytes for the client; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return None,
                () = self.key.changed() => if !self.key.is_valid() {
                    return None;
                },
                () = &mut self.tick => {
                    self.tick.as_mut().reset(Instant::now() + KEEP_ALIVE_INTERVAL);
                    // A key may have expired.
                    return self.key.is_valid().then_some(KEEP_ALIVE);
                }
                event = self.events.recv() => return event,
            }
        }
    }
}
