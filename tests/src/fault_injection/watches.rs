//! Delivery of the lines of a watch under faults.

use std::collections::VecDeque;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::{Disconnected, Faults, Outage};

/// Lines of a watch on their way to the client, with the times at which they were sent.
struct FaultyWatch {
    initial: VecDeque<Bytes>,
    sent: mpsc::UnboundedReceiver<(Bytes, Instant)>,
    faults: Faults,
    drops: watch::Receiver<u64>,
    outage: watch::Receiver<Outage>,
    /// The next line, with the time of its delivery.
    held: Option<(Bytes, Instant)>,
    is_broken: bool,
}

impl Faults {
    /// Subjects a watch to lag, drops and outages. The initial objects of a watch that is not
    /// resumed are no changes and have no lag.
    pub(super) fn watch(&self, body: Body, is_resumed: bool) -> Body {
        let mut lines = body.into_data_stream();
        let mut initial = VecDeque::new();
        while !is_resumed && let Some(Some(Ok(line))) = lines.next().now_or_never() {
            initial.push_back(line);
        }
        let (sender, sent) = mpsc::unbounded_channel();
        tokio::spawn(read(lines, sender, self.outage.subscribe()));
        let watch = FaultyWatch {
            initial,
            sent,
            faults: self.clone(),
            drops: self.drops.subscribe(),
            outage: self.outage.subscribe(),
            held: None,
            is_broken: false,
        };
        Body::from_stream(stream::unfold(watch, |mut watch| async {
            let line = watch.next().await?;
            Some((line, watch))
        }))
    }
}

/// Reads the lines when they are sent, whenever the client reads them.
async fn read(
    mut lines: BodyDataStream,
    sender: mpsc::UnboundedSender<(Bytes, Instant)>,
    mut outage: watch::Receiver<Outage>,
) {
    loop {
        let is_hanging = *outage.borrow_and_update() == Outage::Hang;
        tokio::select! {
            () = sender.closed() => return,
            _ = outage.changed() => {}
            line = lines.next(), if !is_hanging => match line {
                Some(Ok(line)) => drop(sender.send((line, Instant::now()))),
                _ => return,
            },
        }
    }
}

impl FaultyWatch {
    async fn next(&mut self) -> Option<Result<Bytes, Disconnected>> {
        while !self.is_broken {
            let outage = *self.outage.borrow_and_update();
            if outage == Outage::Refuse || self.drops.has_changed().unwrap_or(true) {
                self.is_broken = true;
                return Some(Err(Disconnected));
            }
            let is_hanging = outage == Outage::Hang;
            if let Some(line) = self.initial.pop_front_if(|_| !is_hanging) {
                return Some(Ok(line));
            }
            let due = self.held.as_ref().map(|(_, due)| *due);
            if !is_hanging && due.is_some_and(|due| due <= Instant::now()) {
                return self.held.take().map(|(line, _)| Ok(line));
            }
            tokio::select! {
                biased;
                _ = self.drops.changed() => self.drops.mark_changed(),
                _ = self.outage.changed() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if !is_hanging && due.is_some() => {}
                sent = self.sent.recv(), if !is_hanging && due.is_none() => {
                    let (line, at) = sent?;
                    self.held = Some((line, at + self.faults.state.lock().watch_lag));
                }
            }
        }
        None
    }
}
