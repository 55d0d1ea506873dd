//! One stream of events to one client: first the backlog, then changes as they happen. It ends when
//! the API key is revoked, when the replica drains, or when messages are lost.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shared::metrics::GaugeGuard;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep};

use super::backlog::recent_builds;
use super::hub::Subscription;
use super::message::{KEEP_ALIVE, Message};
use super::{Backlog, Describe, KeyCheck};

/// Interval of comments that keep the connection open, and of checks of the API key.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct EventStream {
    subscription: Subscription,
    backlog: Backlog,
    key: KeyCheck,
    describe: Arc<dyn Describe>,
    has_begun: bool,
    tick: Pin<Box<Sleep>>,
    _open: GaugeGuard,
}

impl EventStream {
    pub(crate) fn new(
        subscription: Subscription,
        backlog: Backlog,
        key: KeyCheck,
        describe: Arc<dyn Describe>,
    ) -> Self {
        let open = GaugeGuard::new(&subscription.events().metrics.event_streams);
        Self {
            subscription,
            backlog,
            key,
            describe,
            has_begun: false,
            tick: Box::pin(sleep(KEEP_ALIVE_INTERVAL)),
            _open: open,
        }
    }

    /// Returns the next bytes for the client; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        while !self.backlog.is_complete() {
            // Thousands of descriptions must not keep a thread from other tasks.
            yield_now().await;
            if self.subscription.events().stopping.is_cancelled() {
                return None;
            }
            let may_have_changed = !self.has_begun || self.key.has_changed();
            if may_have_changed && !self.key.is_valid() {
                return None;
            }
            let part = self.next_of_backlog()?;
            if !part.is_empty() {
                return Some(part);
            }
        }
        self.next_change().await
    }

    /// Changes come first, so that they do not pile up while a slow client reads a long list.
    fn next_of_backlog(&mut self) -> Option<Bytes> {
        match self.subscription.try_next() {
            Ok(message) if self.needs(&message) => return Some(message.without_cursor()),
            Ok(_) => return Some(Bytes::new()),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => return self.lost(),
        }
        let mut part = String::new();
        let events = self.subscription.events();
        if !self.has_begun && self.backlog.scope().runtime_id.is_none() {
            let builds = events.builds.index.of_tenant(self.subscription.tenant());
            part += &recent_builds(&builds, &*self.describe);
        }
        self.has_begun = true;
        let index = &events.sandboxes.index;
        part += &self.backlog.next_part(index, &*self.describe);
        Some(part.into())
    }

    async fn next_change(&mut self) -> Option<Bytes> {
        let stopping = self.subscription.events().stopping.clone();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return None,
                () = self.key.changed() => if !self.key.is_valid() {
                    return None;
                },
                () = &mut self.tick => {
                    self.tick.as_mut().reset(Instant::now() + KEEP_ALIVE_INTERVAL);
                    // A key may have expired.
                    return self.key.is_valid().then_some(KEEP_ALIVE);
                }
                message = self.subscription.next() => match message {
                    Some(message) if self.needs(&message) => return Some(message.text()),
                    Some(_) => {}
                    None => return self.lost(),
                },
            }
        }
    }

    fn needs(&mut self, message: &Message) -> bool {
        match &message.change {
            Some(change) => self.backlog.needs(change),
            None => self.backlog.scope().runtime_id.is_none(),
        }
    }

    /// Ends the stream of a client that is too slow. It continues by its cursor.
    fn lost(&self) -> Option<Bytes> {
        self.subscription
            .events()
            .metrics
            .event_streams_dropped
            .inc();
        None
    }
}
