//! Navigations in progress, and waits of operations for what they cause. Waits end with the tab,
//! whose navigations otherwise never would.

use std::collections::HashSet;
use std::time::Duration;

use super::event_types::{NavigatedWithin, NavigationStep};
use super::state::TabsState;
use super::{FrameId, Tabs, TargetId};
use crate::cdp::SessionId;

/// Events of a navigation on the way to its document.
pub(super) const NAVIGATION_STEPS: [&str; 5] = [
    "Page.frameScheduledNavigation",
    "Page.frameRequestedNavigation",
    "Page.frameClearedScheduledNavigation",
    "Page.frameStartedNavigating",
    "Page.frameStoppedLoading",
];

impl TabsState {
    /// Applies one of [`NAVIGATION_STEPS`].
    pub(super) fn navigation_step(
        &mut self,
        session: &SessionId,
        method: &str,
        event: NavigationStep,
    ) {
        let id = FrameId(event.frame_id.into());
        let Some(frame) = self
            .of_session(session)
            .and_then(|state| state.frames.get_mut(&id))
        else {
            return;
        };
        match method {
            // A later refresh is not on its way yet.
            "Page.frameScheduledNavigation" => frame.is_requested |= event.delay == Some(0.0),
            "Page.frameRequestedNavigation" => {
                frame.is_requested |= event.disposition.as_deref() == Some("currentTab");
            }
            "Page.frameClearedScheduledNavigation" => frame.is_requested = false,
            "Page.frameStartedNavigating" => {
                (frame.is_requested, frame.is_started) = (false, true);
            }
            _ => frame.is_started = false,
        }
    }

    pub(super) fn navigated_within(&mut self, session: &SessionId, event: NavigatedWithin) {
        let Some(state) = self.of_session(session) else {
            return;
        };
        let id = FrameId(event.frame_id.into());
        if id == state.tab.main_frame() {
            state.tab.url.clone_from(&event.url);
        }
        if let Some(frame) = state.frames.get_mut(&id) {
            frame.url = event.url;
            frame.end_navigation();
            state.navigation_count += 1;
        }
    }
}

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
