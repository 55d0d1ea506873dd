//! Navigation of a tab by its address and by its history.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::page::{Deadline, Page};
use crate::cdp::CdpError;
use crate::error::StepError;

/// Time in which the browser tells of a download that came instead of a document.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_millis(250);
/// Time in which the browser shows its own page about an error.
const ERROR_PAGE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
enum NavigationError {
    #[error("Timeout exceeded.")]
    Timeout,
    #[error("Target page, context or browser has been closed")]
    Closed,
    #[error("{0}")]
    Failed(String),
}

impl NavigationError {
    fn into_step_error(self, method: &str, limit: Duration, log: &str) -> StepError {
        let (class, text) = match self {
            Self::Timeout => {
                let text = format!("Timeout {}ms exceeded.", limit.as_millis());
                ("TimeoutError", text)
            }
            Self::Closed => ("TargetClosedError", self.to_string()),
            Self::Failed(text) => ("Error", text),
        };
        StepError::new(class, format!("{method}: {text}\nCall log:\n  - {log}\n"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Navigated {
    /// Absent if the document stays.
    loader_id: Option<String>,
    error_text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    current_index: usize,
    entries: Vec<HistoryEntry>,
}

#[derive(Deserialize)]
struct HistoryEntry {
    id: i64,
}

impl Page {
    pub(super) async fn go_to(&self, url: &str, limit: Duration) -> Result<(), StepError> {
        let is_local = url.starts_with("localhost") || url.starts_with("127.0.0.1");
        let url = format!("{}{url}", if is_local { "http://" } else { "" });
        let navigated = self.navigate(&url, limit).await;
        navigated.map_err(|error| {
            let log = format!("navigating to \"{url}\", waiting until \"load\"");
            error.into_step_error("Page.goto", limit, &log)
        })
    }

    async fn navigate(&self, url: &str, limit: Duration) -> Result<(), NavigationError> {
        let deadline = Deadline::after(limit);
        let since = self.tabs.navigation_count(&self.tab.id);
        let downloads = self.tabs.download_count();
        let params = json!({"url": url});
        let session = &self.tab.session;
        let navigating = session.call_within::<Navigated>(limit, "Page.navigate", params);
        let navigated = tokio::select! {
            navigated = navigating => navigated,
            () = self.tabs.gone(&self.tab.id) => Err(CdpError::Closed),
        };
        let navigated = navigated.map_err(|error| self.failure(error, "Page.navigate"))?;
        if let Some(text) = navigated.error_text {
            let mut is_download = false;
            if text == "net::ERR_ABORTED" {
                is_download = self.tabs.download_begun(downloads, DOWNLOAD_TIMEOUT).await;
            } else {
                // A page that tells of the error takes the place of the document.
                let id = &self.tab.id;
                self.tabs.navigated(id, since, ERROR_PAGE_TIMEOUT).await;
            }
            return Err(NavigationError::Failed(if is_download {
                "Download is starting".into()
            } else {
                format!("{text} at {url}")
            }));
        }
        match navigated.loader_id {
            Some(_) => self.wait_for_load(since, deadline).await,
            None => Ok(()),
        }
    }

    /// Goes so many entries forward, or back if negative; does nothing without such an entry.
    pub(super) async fn go_in_history(
        &self,
        offset: isize,
        limit: Duration,
    ) -> Result<(), StepError> {
        let method = if offset < 0 {
            "Page.go_back"
        } else {
            "Page.go_forward"
        };
        let gone = self.move_in_history(offset, limit).await;
        gone.map_err(|error| {
            error.into_step_error(method, limit, "waiting for navigation until \"load\"")
        })
    }

    async fn move_in_history(&self, offset: isize, limit: Duration) -> Result<(), NavigationError> {
        let history = self.history().await?;
        let index = history.current_index.checked_add_signed(offset);
        let Some((index, entry)) =
            index.and_then(|index| Some((index, history.entries.get(index)?)))
        else {
            return Ok(());
        };
        let deadline = Deadline::after(limit);
        let mut since = self.tabs.navigation_count(&self.tab.id);
        let session = &self.tab.session;
        let params = json!({"entryId": entry.id});
        let going = session.call::<IgnoredAny>("Page.navigateToHistoryEntry", params);
        let method = "Page.navigateToHistoryEntry";
        going.await.map_err(|error| self.failure(error, method))?;
        // A frame may navigate by itself in the meantime.
        loop {
            self.wait_for_load(since, deadline).await?;
            if self.history().await?.current_index == index {
                return Ok(());
            }
            since = self.tabs.navigation_count(&self.tab.id);
        }
    }

    async fn history(&self) -> Result<History, NavigationError> {
        let method = "Page.getNavigationHistory";
        let asking = self.tab.session.call(method, json!({}));
        asking.await.map_err(|error| self.failure(error, method))
    }

    /// Waits until the tab has its next document; stops loading when the time is up.
    async fn wait_for_load(&self, since: u64, deadline: Deadline) -> Result<(), NavigationError> {
        let id = &self.tab.id;
        if self.tabs.navigated(id, since, deadline.remaining()).await {
            return Ok(());
        }
        Err(self.failure(CdpError::Timeout("load"), "load"))
    }

    fn failure(&self, error: CdpError, method: &str) -> NavigationError {
        match error {
            _ if self.is_gone() => NavigationError::Closed,
            CdpError::Closed => NavigationError::Closed,
            CdpError::Timeout(_) => {
                self.tab.session.send("Page.stopLoading", json!({}));
                NavigationError::Timeout
            }
            CdpError::Protocol { message, .. } => {
                NavigationError::Failed(format!("Protocol error ({method}): {message}"))
            }
            error @ CdpError::Malformed { .. } => NavigationError::Failed(error.to_string()),
        }
    }
}
