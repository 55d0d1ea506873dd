//! The tabs of the browser as a list, in the order of their creation.

use serde::de::IgnoredAny;
use serde_json::json;

use super::Operations;
use crate::cdp::CdpError;
use crate::error::StepError;

impl Operations {
    pub(super) async fn open_tab(&mut self) -> Result<(), StepError> {
        let tab = self.tabs.open("about:blank").await;
        self.current = tab
            .map_err(|error| failure("BrowserContext.new_page", &error))?
            .id;
        Ok(())
    }

    /// Closes the current tab, after which the last one is current, or a new one.
    pub(super) async fn close_tab(&mut self) -> Result<(), StepError> {
        if self.tabs.get(&self.current).is_some() {
            let closed = self.tabs.close(&self.current).await;
            closed.map_err(|error| failure("Page.close", &error))?;
        }
        match self.tabs.list().last() {
            Some(tab) => {
                self.current = tab.id.clone();
                self.tabs.activate(&self.current);
                Ok(())
            }
            None => self.open_tab().await,
        }
    }

    /// Brings a tab to the front; negative numbers count from the end.
    pub(super) async fn focus_tab(&mut self, index: i64) -> Result<(), StepError> {
        let tabs = self.tabs.list();
        let index = usize::try_from(index).ok().or_else(|| {
            let from_end = usize::try_from(index.unsigned_abs()).ok()?;
            tabs.len().checked_sub(from_end)
        });
        let tab = index
            .and_then(|index| tabs.get(index))
            .ok_or_else(|| StepError::new("IndexError", "list index out of range"))?;
        self.current = tab.id.clone();
        let fronting = tab
            .session
            .call::<IgnoredAny>("Page.bringToFront", json!({}));
        fronting
            .await
            .map_err(|error| failure("Page.bring_to_front", &error))?;
        self.tabs.activate(&self.current);
        Ok(())
    }
}

fn failure(method: &str, error: &CdpError) -> StepError {
    StepError::new("Error", format!("{method}: {error}"))
}
