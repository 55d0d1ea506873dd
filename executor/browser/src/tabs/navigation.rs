//! Waits of operations for what they cause: navigations, downloads, and the end of their own tab.

use std::collections::HashSet;
use std::time::Duration;

use super::{FrameId, Tabs, TargetId};

impl Tabs {
    /// Number of documents that a tab has had, and of navigations within one.
    pub fn navigation_count(&self, tab: &TargetId) -> u64 {
        let state = self.shared.state.lock();
        state.find(tab).map_or(0, |state| state.navigation_count)
    }

    /// Waits until a tab has navigated after `since` navigations and its document is loaded.
    pub async fn navigated(&self, tab: &TargetId, since: u64, limit: Duration) -> bool {
        let waiting = self.wait(limit, |state| {
            state
                .has_navigated(tab, since)
                .then_some(true)
                .or_else(|| state.tab(tab).is_none().then_some(false))
        });
        waiting.await == Some(true)
    }

    pub fn navigating_frames(&self, tab: &TargetId) -> HashSet<FrameId> {
        self.shared.state.lock().navigating_frames(tab)
    }

    /// Waits up to `limit` until no frame is navigating but those that did so `before`.
    pub async fn new_navigations_ended(
        &self,
        tab: &TargetId,
        before: &HashSet<FrameId>,
        limit: Duration,
    ) {
        self.wait(limit, |state| {
            let navigating = state.navigating_frames(tab);
            navigating.is_subset(before).then_some(())
        })
        .await;
    }

    /// Waits until a tab is closed or crashes.
    pub async fn gone(&self, tab: &TargetId) {
        let forever = Duration::MAX;
        self.wait(forever, |state| state.tab(tab).is_none().then_some(()))
            .await;
    }

    /// Number of downloads that have begun.
    pub fn download_count(&self) -> u64 {
        self.shared.state.lock().downloads.count
    }

    /// Waits up to `limit` until more than `since` downloads have begun.
    pub async fn download_begun(&self, since: u64, limit: Duration) -> bool {
        let waiting = self.wait(limit, |state| (state.downloads.count > since).then_some(()));
        waiting.await.is_some()
    }
}
