//! One step: runs a program in the current tab and observes the active one (sections 2.2 and 2.6).

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::cdp::CdpError;
use crate::error::StepError;
use crate::observe::{self, ObserveError};
use crate::operations::{Operations, UploadFiles};
use crate::program;
use crate::tabs::{Download, Tab, Tabs, TargetId};

mod address;
mod page;

pub use self::address::visit_program;
pub use self::page::PageView;

/// Longest wait for documents that are being parsed.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for tabs that a page opens.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a page has to respond before a program runs.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for downloads that have begun.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a page is observed that was replaced meanwhile.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Observations in turn if a page is replaced, hangs or crashes.
const MAX_OBSERVATIONS: usize = 5;

#[derive(Debug, Clone)]
pub struct StepContext {
    pub files: UploadFiles,
    /// True if the accessibility tree is wanted as an object.
    pub raw_tree: bool,
    /// Length from which a tree text has only visible elements.
    pub max_tree_chars: Option<usize>,
}

/// Result of a step.
#[derive(Debug)]
pub struct Step {
    pub program: String,
    /// Error that ended the program.
    pub error: Option<StepError>,
    /// Sentences about tabs that were lost.
    pub notices: Vec<String>,
    pub open_pages_urls: Vec<String>,
    pub active_page_index: usize,
    pub page: PageView,
    /// Downloads that have ended since the last step.
    pub downloads: Vec<Download>,
}

/// Runs a program and observes the active tab. Fails if the browser does not respond.
pub async fn run(tabs: &Tabs, program: &str, context: &StepContext) -> Result<Step, CdpError> {
    let current = living_tab(tabs).await?;
    let mut operations = Operations::new(tabs.clone(), current.id, context.files.clone());
    let downloads_before = tabs.download_count();
    let error = run_all(tabs, &mut operations, program).await.err();
    let mut notices = Vec::new();
    settle(tabs, downloads_before).await;
    let (tab, page) = observe_active(tabs, context, &mut notices).await?;
    let lost = tabs.take_crashes();
    match lost {
        0 => {}
        1 => notices.push("A tab crashed and was closed.".to_owned()),
        lost => notices.push(format!("{lost} tabs crashed and were closed.")),
    }
    let open = tabs.list();
    Ok(Step {
        program: program.to_owned(),
        error,
        notices,
        active_page_index: open.iter().position(|one| one.id == tab).unwrap_or(0),
        open_pages_urls: open.into_iter().map(|tab| tab.url).collect(),
        page,
        downloads: tabs.take_downloads(),
    })
}

async fn run_all(tabs: &Tabs, operations: &mut Operations, program: &str) -> Result<(), StepError> {
    for call in program::parse(program)? {
        operations.run(call.bind()?).await?;
        // The tabs that a call opens become active before those that later calls use.
        tabs.opened(OPEN_TIMEOUT).await;
    }
    Ok(())
}

/// Waits until the effects of the program have shown: documents, downloads, scripts. Operations
/// have waited for the navigations that they began.
async fn settle(tabs: &Tabs, downloads_before: u64) {
    if let Some(active) = tabs.active() {
        observe::settle(tabs, &active).await;
    }
    let is_opening = tabs.is_opening();
    tabs.opened(OPEN_TIMEOUT).await;
    let list = tabs.list();
    let documents = list
        .iter()
        .map(|tab| tabs.documents_ready(&tab.id, DOCUMENT_TIMEOUT));
    join_all(documents).await;
    // An earlier download does not hold this step up.
    if tabs.download_count() > downloads_before {
        tabs.downloads_ended(DOWNLOAD_TIMEOUT).await;
    }
    if is_opening && let Some(active) = tabs.active() {
        observe::settle(tabs, &active).await;
    }
}

/// Observes the active tab. One that does not respond is closed, and the next one is observed.
async fn observe_active(
    tabs: &Tabs,
    context: &StepContext,
    notices: &mut Vec<String>,
) -> Result<(TargetId, PageView), CdpError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let tab = active_tab(tabs).await?;
        tab.session.send("Page.bringToFront", json!({}));
        let observed = tokio::select! {
            observed = observe::observe(tabs, &tab, context.raw_tree) => observed,
            // Calls of a tab that has crashed are never answered.
            () = tabs.gone(&tab.id) => Err(CdpError::Closed.into()),
        };
        match observed {
            Ok(state) => {
                let max = context.max_tree_chars;
                // A large page takes a tenth of a second.
                let rendering = tokio::task::spawn_blocking(move || PageView::render(state, max));
                let page = rendering.await.map_err(|_| CdpError::Closed)?;
                return Ok((tab.id, page));
            }
            Err(_) if tabs.connection().is_closed() => return Err(CdpError::Closed),
            Err(error) if tries >= MAX_OBSERVATIONS => {
                return Err(match error {
                    ObserveError::Hung => CdpError::Timeout("Runtime.callFunctionOn"),
                    ObserveError::Browser(error) => error,
                });
            }
            // It has crashed, or was closed: there is another one.
            Err(_) if tabs.get(&tab.id).is_none() => {}
            // The page was replaced meanwhile.
            Err(ObserveError::Browser(error)) => {
                tracing::debug!(%error, url = tab.url, "observes once more");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error @ ObserveError::Hung) => {
                tracing::warn!(%error, url = tab.url, "a tab does not respond");
                notices.push(format!(
                    "The page {} did not respond: its tab was closed.",
                    tab.url
                ));
                tabs.close(&tab.id).await?;
            }
        }
    }
}

/// The active tab, or another one if its renderer is about to be known as crashed.
async fn living_tab(tabs: &Tabs) -> Result<Tab, CdpError> {
    let mut tab = active_tab(tabs).await?;
    for _ in 0..MAX_OBSERVATIONS {
        let (method, params) = ("Runtime.evaluate", json!({"expression": "0"}));
        let asked = tab.session.call_raw(ALIVE_TIMEOUT, method, params).await;
        // A page that hangs can still be left.
        if asked.is_ok() || tabs.get(&tab.id).is_some() {
            break;
        }
        tab = active_tab(tabs).await?;
    }
    Ok(tab)
}

/// The active tab, or a new one.
async fn active_tab(tabs: &Tabs) -> Result<Tab, CdpError> {
    match tabs.active() {
        Some(tab) => Ok(tab),
        None => tabs.open("about:blank").await,
    }
}
