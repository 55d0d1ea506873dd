//! The tab that an operation acts on. Input may close the tab or replace its documents, which the
//! operation waits for: the next one finds the page that the input leads to.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::try_join_all;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::cdp::CdpError;
use crate::error::StepError;
use crate::tabs::{FrameId, ScriptError, Tab, Tabs};

/// Time in which a navigation that an input caused must have its document.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time in which its elements should be there. A document of several parts may come for longer.
const PARSE_TIMEOUT: Duration = Duration::from_millis(500);

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

    /// Sends events at once, so that nothing comes between them, and waits for their answers.
    /// There are none if the input closes the tab or replaces the document: it must not be
    /// repeated then.
    pub(super) async fn send_input<P: Serialize>(
        &self,
        limit: Duration,
        method: &'static str,
        events: impl IntoIterator<Item = P>,
    ) -> Result<(), CdpError> {
        let session = &self.tab.session;
        let sending = events
            .into_iter()
            .map(|event| session.call_within::<IgnoredAny>(limit, method, event));
        let result = tokio::select! {
            result = try_join_all(sending) => result,
            () = self.tabs.gone(&self.tab.id) => return Ok(()),
        };
        match result {
            Err(error)
                if !self.is_gone() && !ScriptError::Browser(error.clone()).is_transient() =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn navigations(&self) -> NavigationsBefore {
        NavigationsBefore(self.tabs.navigating_frames(&self.tab.id))
    }

    /// Waits until the navigations that an input has started have their documents, and these their
    /// elements: the next operation must find them.
    pub(super) async fn wait_for_navigations(&self, before: &NavigationsBefore) {
        let waiting = self
            .tabs
            .new_navigations_ended(&self.tab.id, &before.0, COMMIT_TIMEOUT);
        waiting.await;
        self.tabs.documents_ready(&self.tab.id, PARSE_TIMEOUT).await;
    }
}

pub(super) fn closed_error(method: &str) -> StepError {
    let message = format!("{method}: Target page, context or browser has been closed");
    StepError::new("TargetClosedError", message)
}

/// Moment at which an operation gives up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    end: Instant,
    grace: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            grace: Duration::ZERO,
        }
    }

    /// Lets calls that begin in time end a little later.
    pub(super) fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    pub(super) fn remaining(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    pub(super) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits before a next try: so many milliseconds after each, and the last again and again.
    pub(super) async fn pause(self, delays: &[u64], tries: usize) {
        let delay = delays.get(tries).or(delays.last()).copied();
        let delay = Duration::from_millis(delay.unwrap_or_default());
        tokio::time::sleep(delay.min(self.remaining())).await;
    }

    /// Time for a call.
    pub(super) fn call_limit(self) -> Duration {
        (self.end + self.grace).saturating_duration_since(Instant::now())
    }
}
