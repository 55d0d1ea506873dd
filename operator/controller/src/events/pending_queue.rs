//! Bounded queue of pending Events.

use std::collections::VecDeque;

use super::PendingEvent;

/// The queue, oldest first.
#[derive(Debug)]
pub(super) struct PendingQueue {
    events: VecDeque<PendingEvent>,
    capacity: usize,
    /// True while an Event that was taken is being written.
    is_writing: bool,
}

impl PendingQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            events: VecDeque::new(),
            capacity,
            is_writing: false,
        }
    }

    /// Adds an Event. A full queue drops and returns the oldest normal Event, or else the oldest.
    pub(super) fn push(&mut self, event: PendingEvent) -> Option<PendingEvent> {
        self.events.push_back(event);
        if self.events.len() <= self.capacity {
            return None;
        }
        let normal = self.events.iter().position(|e| !e.content.warning);
        self.events.remove(normal.unwrap_or(0))
    }

    /// Takes the oldest Event. The caller calls [`PendingQueue::done`] after it is written.
    pub(super) fn next(&mut self) -> Option<PendingEvent> {
        let event = self.events.pop_front()?;
        self.is_writing = true;
        Some(event)
    }

    pub(super) fn done(&mut self) {
        self.is_writing = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.is_writing
    }
}
