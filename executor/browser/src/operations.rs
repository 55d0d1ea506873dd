//! The operations of a program on a tab (`docs/specs/browser.md`, sections 2.3 and 2.4). Errors
//! have the texts of section 2.2. Each operation ends in bounded time, even if its page hangs.

use std::time::Duration;

use crate::error::StepError;
use crate::program::Operation;
use crate::tabs::{Tabs, TargetId};

mod aim;
mod bid;
mod call_log;
mod click;
mod drag;
mod element_call;
mod frame_places;
mod geometry;
mod keyboard;
mod locate;
mod mouse;
mod navigation;
mod page;
mod press;
mod scripts;
mod select;
mod tab_list;
mod text;
mod upload;
mod upload_files;

pub use self::upload_files::{FoundFile, UploadFiles};

use self::page::Page;

/// Time until the `load` event of a new document (section 1.5).
const NAVIGATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the operations of one program, in their order.
#[derive(Debug)]
pub struct Operations {
    tabs: Tabs,
    /// The tab that operations act on, which may be gone.
    current: TargetId,
    /// Paths of files to upload are relative to it.
    files: UploadFiles,
    navigation_timeout: Duration,
}

impl Operations {
    pub fn new(tabs: Tabs, current: TargetId, files: UploadFiles) -> Self {
        Self {
            tabs,
            current,
            files,
            navigation_timeout: NAVIGATION_TIMEOUT,
        }
    }

    #[must_use]
    pub fn with_navigation_timeout(mut self, limit: Duration) -> Self {
        self.navigation_timeout = limit;
        self
    }

    pub fn current(&self) -> &TargetId {
        &self.current
    }

    pub async fn run(&mut self, operation: Operation) -> Result<(), StepError> {
        const ELEMENT: &str = "Locator.count";
        match operation {
            Operation::Noop { wait_ms } => {
                let time = Duration::try_from_secs_f64(wait_ms.max(0.0) / 1000.0);
                tokio::time::sleep(time.unwrap_or(Duration::MAX)).await;
                Ok(())
            }
            // The client keeps the text itself.
            Operation::SendMessage { .. } | Operation::ReportInfeasible { .. } => Ok(()),
            Operation::NewTab => self.open_tab().await,
            Operation::TabClose => self.close_tab().await,
            Operation::TabFocus { index } => self.focus_tab(index).await,
            Operation::Goto { url } => {
                let page = self.page("Page.goto")?;
                page.go_to(&url, self.navigation_timeout).await
            }
            Operation::GoBack => {
                let page = self.page("Page.go_back")?;
                page.go_in_history(-1, self.navigation_timeout).await
            }
            Operation::GoForward => {
                let page = self.page("Page.go_forward")?;
                page.go_in_history(1, self.navigation_timeout).await
            }
            Operation::Scroll { delta_x, delta_y } => {
                let page = self.page("Mouse.wheel")?;
                page.turn_wheel(delta_x, delta_y).await
            }
            Operation::Fill {
                bid,
                value,
                enable_autocomplete_menu,
            } => {
                let page = self.page(ELEMENT)?;
                page.fill(&bid, value, enable_autocomplete_menu).await
            }
            Operation::Clear { bid } => self.page(ELEMENT)?.clear(&bid).await,
            Operation::SelectOption { bid, options } => {
                self.page(ELEMENT)?.select(&bid, options).await
            }
            Operation::Click { bid, click } => self.page(ELEMENT)?.click(&bid, click, 1).await,
            Operation::DoubleClick { bid, click } => {
                self.page(ELEMENT)?.click(&bid, click, 2).await
            }
            Operation::Hover { bid } => self.page(ELEMENT)?.hover(&bid).await,
            Operation::Focus { bid } => self.page(ELEMENT)?.focus(&bid).await,
            Operation::Press { bid, combination } => {
                self.page(ELEMENT)?.press(&bid, combination).await
            }
            Operation::DragAndDrop { from_bid, to_bid } => {
                self.page(ELEMENT)?.drag(&from_bid, to_bid).await
            }
            Operation::UploadFile { bid, files } => {
                let page = self.page(ELEMENT)?;
                page.upload(&bid, files, &self.files).await
            }
        }
    }

    /// The current tab; `method` is the one that finds out that it is gone.
    fn page(&self, method: &'static str) -> Result<Page, StepError> {
        let tab = self.tabs.get(&self.current);
        tab.map(|tab| Page::new(self.tabs.clone(), tab))
            .ok_or_else(|| page::closed_error(method))
    }
}
