//! Downloads in progress and ended, as the browser tells them.

use std::collections::VecDeque;

/// Downloads that are remembered; the oldest ended one is forgotten first.
const MAX_DOWNLOADS: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Name of the file in the download folder.
    pub guid: String,
    pub url: String,
    pub suggested_name: String,
    pub is_completed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Downloads {
    /// Number of downloads so far.
    pub(super) count: u64,
    running: Vec<Download>,
    ended: VecDeque<Download>,
}

impl Downloads {
    pub(super) fn begin(&mut self, download: Download) {
        self.count += 1;
        if self.running.len() < MAX_DOWNLOADS {
            self.running.push(download);
        }
    }

    pub(super) fn end(&mut self, guid: &str, is_completed: bool) {
        let Some(at) = self.running.iter().position(|one| one.guid == guid) else {
            return;
        };
        let mut download = self.running.remove(at);
        download.is_completed = is_completed;
        if self.ended.len() == MAX_DOWNLOADS {
            self.ended.pop_front();
        }
        self.ended.push_back(download);
    }

    pub(super) fn are_idle(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn take_ended(&mut self) -> Vec<Download> {
        self.ended.drain(..).collect()
    }
}
