//! Announcements that wait to be written: a bounded queue.

use std::collections::VecDeque;

use super::Notice;

/// The queue, oldest first.
#[derive(Debug)]
pub(super) struct Waiting {
    notices: VecDeque<Notice>,
    capacity: usize,
    /// One has been handed out and is being written.
    busy: bool,
}

impl Waiting {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            notices: VecDeque::new(),
            capacity,
            busy: false,
        }
    }

    /// Adds one. Returns what had to make room: the oldest that is no warning, else the oldest.
    pub(super) fn push(&mut self, notice: Notice) -> Option<Notice> {
        self.notices.push_back(notice);
        if self.notices.len() <= self.capacity {
            return None;
        }
        let mut places = self.notices.iter();
        let place = places.position(|n| !n.announcement.warning);
        self.notices.remove(place.unwrap_or(0))
    }

    /// Hands out the oldest; [`Waiting::done`] tells when it is dealt with.
    pub(super) fn next(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        self.busy = true;
        Some(notice)
    }

    pub(super) fn done(&mut self) {
        self.busy = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notices.is_empty() && !self.busy
    }
}
