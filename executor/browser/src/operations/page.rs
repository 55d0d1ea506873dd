//! The tab that an operation acts on, and what input in it may cause.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::cdp::CdpError;
use crate::error::StepError;
use crate::tabs::{FrameId, Tab, Tabs};

/// Time in which a navigation that an input caused must have its document.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Page {
    pub(super) tabs: Tabs,
    pub(super) tab: Tab,
}

/// Frames that navigated before an input, and so not because of it.
#[derive(Debug)]
pub(super) struct NavigationsBefore(HashSet<FrameId>);

impl Page {
    pub(super) fn new(tabs: Tabs, tab: Tab) -> Self {
        Self { tabs, tab }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.tabs.get(&self.tab.id).is_none()
    }

    /// Waits for the answer to an input, unless the input closes the tab.
    pub(super) async fn input(
        &self,
        input: impl Future<Output = Result<(), CdpError>>,
    ) -> Result<(), CdpError> {
        let result = tokio::select! {
            biased;
            () = self.tabs.gone(&self.tab.id) => return Ok(()),
            result = input => result,
        };
        if self.is_gone() { Ok(()) } else { result }
    }

    pub(super) fn navigations(&self) -> NavigationsBefore {
        NavigationsBefore(self.tabs.navigating_frames(&self.tab.id))
    }

    /// Waits until the navigations that an input has started have their documents.
    pub(super) async fn wait_for_navigations(&self, before: &NavigationsBefore) {
        let waiting = self
            .tabs
            .new_navigations_ended(&self.tab.id, &before.0, COMMIT_TIMEOUT);
        waiting.await;
    }
}

pub(super) fn closed_error(method: &str) -> StepError {
    let message = format!("{method}: Target page, context or browser has been closed");
    StepError::new("TargetClosedError", message)
}

/// Moment at which an operation gives up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub(super) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}
