//! Changes of one sandbox that is waited for: by events of the gateway, and by polls where there are none.

use std::time::Duration;

use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Client;

/// First and longest time between two polls without events.
const INITIAL_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(1);
/// Time between polls beside events, for a stream that has broken and is not open again yet.
const POLL_BESIDE_EVENTS: Duration = Duration::from_secs(3);

/// Says when a sandbox is worth another look.
#[derive(Debug)]
pub(super) struct Changes {
    /// Closed when the gateway has no events.
    events: Receiver<()>,
    /// An event has come, so that no proxy holds them back.
    has_events: bool,
    poll: Duration,
    /// Ends with this.
    _stream: JoinSet<()>,
}

impl Changes {
    pub(super) fn new(client: &Client, runtime_id: &str) -> Self {
        let (sender, events) = mpsc::channel(1);
        let mut stream = JoinSet::new();
        stream.spawn(read(client.clone(), runtime_id.to_owned(), sender));
        Self {
            events,
            has_events: false,
            poll: INITIAL_POLL,
            _stream: stream,
        }
    }

    /// Waits until the sandbox may have changed.
    pub(super) async fn next(&mut self) {
        if self.events.is_closed() && self.events.is_empty() {
            self.has_events = false;
        }
        let limit = if self.has_events {
            POLL_BESIDE_EVENTS
        } else {
            self.poll
        };
        self.poll = (self.poll * 3 / 2).min(MAX_POLL);
        match timeout(limit, self.events.recv()).await {
            Ok(Some(())) => self.has_events = true,
            Ok(None) => sleep(limit).await,
            Err(_) => {}
        }
    }
}

/// Passes events on until they end. An event that is not taken yet stands for later ones as well.
async fn read(client: Client, runtime_id: String, changed: Sender<()>) {
    let Ok(mut events) = client.events(Some(&runtime_id)).await else {
        return;
    };
    while events.next().await.is_ok() {
        if let Err(TrySendError::Closed(())) = changed.try_send(()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn changes() -> (Sender<()>, Changes) {
        let (sender, events) = mpsc::channel(1);
        let changes = Changes {
            events,
            has_events: false,
            poll: INITIAL_POLL,
            _stream: JoinSet::new(),
        };
        (sender, changes)
    }

    async fn elapsed(changes: &mut Changes) -> Duration {
        let began = Instant::now();
        changes.next().await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn event_is_seen_at_once_and_polls_go_on_slowly() {
        let (sender, mut changes) = changes();
        sender.try_send(()).unwrap();
        assert_eq!(elapsed(&mut changes).await, Duration::ZERO);
        assert!(elapsed(&mut changes).await >= POLL_BESIDE_EVENTS);
        sender.try_send(()).unwrap();
        assert_eq!(elapsed(&mut changes).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn polls_slow_down_to_a_second_without_events() {
        let (sender, mut changes) = changes();
        assert!(elapsed(&mut changes).await < INITIAL_POLL * 2);
        drop(sender);
        for _ in 0..10 {
            assert!(elapsed(&mut changes).await < MAX_POLL * 2);
        }
        assert!(elapsed(&mut changes).await >= MAX_POLL);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_events_leads_back_to_quick_polls() {
        let (sender, mut changes) = changes();
        sender.try_send(()).unwrap();
        changes.next().await;
        drop(sender);
        changes.next().await;
        assert!(elapsed(&mut changes).await < MAX_POLL * 2);
    }
}
