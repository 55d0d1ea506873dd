//! Observation of the active tab (section 2.6): mark all frames, read them in one round of
//! concurrent calls, take the marks away.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::{OptionFuture, join_all};
use serde::Deserialize;
use serde_json::json;

use crate::cdp::{CdpError, Session};
use crate::snapshot::ax::AxTree;
use crate::snapshot::dom::DomSnapshot;
use crate::tabs::{ScriptError, Tab, Tabs};

use self::mark::MarkedFrame;

mod mark;

/// Longest wait for one answer about a page. A page of 6 000 elements needs one second.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a page whose scripts may hang.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A script of the page does not return control.
    #[error("the page does not respond")]
    Hung,
    #[error(transparent)]
    Browser(#[from] CdpError),
}

/// A page at one moment.
#[derive(Debug)]
pub struct PageState {
    pub url: String,
    pub screenshot: Vec<u8>,
    /// Id of the focused element: `Some("")` if none has the focus, `None` if it has no id.
    pub focused: Option<String>,
    pub frames: Vec<FrameState>,
}

/// A frame and, if it is the first of its session, the documents of that session.
#[derive(Debug)]
pub struct FrameState {
    pub frame: MarkedFrame,
    pub tree: AxFrame,
    pub documents: Option<DomSnapshot>,
}

/// Accessibility tree of one frame.
#[derive(Debug)]
pub enum AxFrame {
    Typed(AxTree),
    /// With all fields, for `axtree_object`.
    Raw(serde_json::Value),
}

/// Reads a tab. `raw_tree` keeps all fields of the accessibility tree.
pub async fn observe(tabs: &Tabs, tab: &Tab, raw_tree: bool) -> Result<PageState, ObserveError> {
    // Marks cannot be seen, so that the picture need not wait for them. Its failure waits until they
    // are taken away; a page that does not respond is not waited for by both.
    let picture = async { Ok(screenshot(&tab.session).await) };
    let (screenshot, (focused, frames)) = tokio::try_join!(picture, read(tabs, tab, raw_tree))?;
    let url = tabs
        .get(&tab.id)
        .map_or_else(|| tab.url.clone(), |tab| tab.url);
    Ok(PageState {
        url,
        screenshot: screenshot?,
        focused,
        frames,
    })
}

/// Marks a tab, reads the focused element and all frames, and takes the marks away.
async fn read(
    tabs: &Tabs,
    tab: &Tab,
    raw_tree: bool,
) -> Result<(Option<String>, Vec<FrameState>), ObserveError> {
    let marked = mark::mark(tabs, tab).await?;
    let frames = marked
        .iter()
        .map(|frame| read_frame(frame, &marked, raw_tree));
    let (focused, frames) = tokio::join!(mark::focused(&marked), join_all(frames));
    // Also after a failure: the page must not keep the marks.
    mark::unmark(&marked).await;
    let states = marked.into_iter().zip(frames).map(|(frame, read)| {
        let (tree, documents) = read?;
        Ok(FrameState {
            frame,
            tree,
            documents,
        })
    });
    let states: Result<_, ObserveError> = states.collect();
    Ok((focused, states?))
}

async fn read_frame(
    marked: &MarkedFrame,
    all: &[MarkedFrame],
    raw: bool,
) -> Result<(AxFrame, Option<DomSnapshot>), ObserveError> {
    let frame = &marked.frame;
    let session = &frame.session;
    let first = all
        .iter()
        .find(|one| one.frame.session.id() == session.id());
    let is_first = first.is_some_and(|first| first.frame.id == frame.id);
    let tree = async {
        let (method, params) = ("Accessibility.getFullAXTree", json!({"frameId": frame.id}));
        Ok::<_, CdpError>(if raw {
            AxFrame::Raw(session.call_within(READ_TIMEOUT, method, params).await?)
        } else {
            AxFrame::Typed(session.call_within(READ_TIMEOUT, method, params).await?)
        })
    };
    let documents = is_first.then(|| {
        let params = json!({"computedStyles": [], "includeDOMRects": true});
        session.call_within(READ_TIMEOUT, "DOMSnapshot.captureSnapshot", params)
    });
    let documents = async { OptionFuture::from(documents).await.transpose() };
    let (tree, documents) = tokio::join!(tree, documents);
    match (tree, documents) {
        (Ok(tree), Ok(documents)) => Ok((tree, documents)),
        // A frame may go while it is read. The main frame may not.
        (Err(error), _) | (_, Err(error))
            if all.first().is_some_and(|main| main.frame.id == frame.id) =>
        {
            Err(error.into())
        }
        _ => Ok((AxFrame::empty(raw), None)),
    }
}

impl AxFrame {
    fn empty(raw: bool) -> Self {
        if raw {
            Self::Raw(json!({"nodes": []}))
        } else {
            Self::Typed(AxTree::default())
        }
    }
}

/// PNG of the viewport.
async fn screenshot(session: &Session) -> Result<Vec<u8>, CdpError> {
    #[derive(Deserialize)]
    struct Captured {
        data: String,
    }
    let method = "Page.captureScreenshot";
    let params = json!({"format": "png", "optimizeForSpeed": true});
    let captured: Captured = session.call_within(READ_TIMEOUT, method, params).await?;
    BASE64_STANDARD
        .decode(captured.data)
        .map_err(|error| CdpError::Malformed {
            method,
            message: error.to_string(),
        })
}

/// Waits until the page has settled after an input: two painted frames, no change for 50 ms, at
/// most half a second.
pub async fn settle(tabs: &Tabs, tab: &Tab) {
    const LIMIT_MS: u64 = 500;
    let Some(main) = tabs.frames(&tab.id).into_iter().next() else {
        return;
    };
    if let Ok(script) = tabs
        .script_frame(&main, crate::tabs::ScriptWorld::Isolated)
        .await
    {
        let limit = Duration::from_millis(LIMIT_MS + 200);
        let function = include_str!("page_scripts/settle.js");
        // A page that is replaced or hangs meanwhile is met by what follows.
        let settled: Result<serde_json::Value, ScriptError> =
            script.call(limit, function, &[json!(LIMIT_MS)]).await;
        drop(settled);
    }
}
